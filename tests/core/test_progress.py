"""What an operation records is JSON; an error says what is not."""

from typing import Any

import pytest

from django_idempotency.core.progress import Progress, Step, StepState
from django_idempotency.core.validation import dump_named

DONE = next(iter(StepState))


def test_the_step_whose_result_is_not_json_is_named() -> None:
    progress = Progress(steps=(Step("fine", DONE, {"a": 1}), Step("charged", DONE, object())))
    with pytest.raises(TypeError, match="The result of the step 'charged' must be JSON"):
        progress.dump()


def test_an_error_that_no_result_explains_is_raised_as_it_is() -> None:
    moment: Any = object()
    with pytest.raises(TypeError, match="object is not JSON serializable"):
        Progress(steps=(Step("charged", DONE, 1, moment, None),)).dump()


def test_a_name_that_is_not_json_is_an_error_too() -> None:
    values: Any = {("not", "text"): 1}
    with pytest.raises(TypeError, match="keys must be str"):
        dump_named("The argument {!r}", values)
