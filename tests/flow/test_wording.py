"""What errors and log lines of work say to the person who has to act on them."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency import Reply
from django_idempotency.core.links import DOCUMENTATION
from django_idempotency.core.progress import Progress
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import DuplicateStep, IdempotencyError, NotExecuted, OutcomeUnknown
from django_idempotency.key_sources import path_argument
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import once
from django_idempotency.operations import Op, enqueue, operation
from tests.kit.calls import a_call, claimed
from tests.kit.http import Person
from tests.kit.operations import begin_anew

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


@pytest.fixture
def alice() -> Person:
    return Person("alice")


@pytest.fixture(autouse=True)
def _operations(settings: Any) -> None:
    begin_anew(settings)


class TestJson:
    def test_of_once(self) -> None:
        with pytest.raises(TypeError, match=r"^The payload of `once` must be JSON: Object of type object is not"):
            once(scope="bills", key="a", payload=object(), run=lambda claim: 1)
        with pytest.raises(TypeError, match=r"^The result of the work of `once` must be JSON: "):
            once(scope="bills", key="a", run=lambda claim: object())

    def test_of_an_argument(self) -> None:
        @operation("tests.book")
        def book(op: Op, place: str, seats: Any) -> Reply:
            return Reply(200, (), b"")

        with pytest.raises(TypeError, match=r"^The argument 'seats' of the operation 'tests\.book' must be JSON: "):
            enqueue("tests", "a", book, place="Ulm", seats=object())
        with pytest.raises(ValueError, match=r"^The argument 'seats' of the operation 'tests\.book' must be JSON: "):
            enqueue("tests", "a", book, place="Ulm", seats=float("nan"))

    def test_of_a_step(self) -> None:
        op = Op(claimed(a_call(on_lost_lease="resume")), Progress(), 0)
        with pytest.raises(TypeError, match=r"^The result of the step 'booked' must be JSON: "):
            op.phase("booked", object)


def test_two_steps_of_one_name() -> None:
    op = Op(claimed(a_call(on_lost_lease="resume")), Progress().mark_done("page", 1), 1)
    op.phase("page", int)
    with pytest.raises(DuplicateStep, match="'page' occurs twice"):
        op.phase("page", int)


def test_an_exception_leads_to_its_line_of_the_reference() -> None:
    class Refused(NotExecuted):
        pass

    address = f"See {DOCUMENTATION}reference/errors.html#"
    assert IdempotencyError.__subclasses__()
    assert OutcomeUnknown().__notes__ == [f"{address}OutcomeUnknown"]
    assert Refused().__notes__ == [f"{address}NotExecuted"]


@idempotent(mode="leased", operation="rides.book")
def crash(request: HttpRequest, **arguments: str) -> HttpResponse:
    raise TimeoutError("the gateway of 4111 1111 1111 1111")


urlpatterns = [
    path("rides/<name>", crash),
    path(
        "keyed/<key>",
        idempotent(mode="leased", operation="rides.keyed", key_source=path_argument("key"))(crash.__wrapped__),  # type: ignore[attr-defined]
    ),
]


def logged(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = [each.getMessage() for each in caplog.records if "is unknown" in each.getMessage()]
    return line


def test_an_unknown_outcome_is_logged_with_all_that_is_needed_to_begin(
    alice: Person, caplog: pytest.LogCaptureFixture
) -> None:
    alice.post("/rides/7%0aERROR")
    record = IdempotencyKey.objects.get().id
    page = f"{DOCUMENTATION}how-to/admin.html#something-is-red-where-to-begin"
    assert logged(caplog) == (
        rf"The outcome of rides.book (POST /rides/7\nERROR) is unknown: TimeoutError. Idempotency record {record}. "
        f"See {page}"
    )


def test_a_path_that_holds_the_key_is_not_logged(alice: Person, caplog: pytest.LogCaptureFixture) -> None:
    alice.post("/keyed/8e03978e-40d5-43dd-bc93-6894a57f9324", key=None)
    assert logged(caplog).startswith("The outcome of rides.keyed is unknown: TimeoutError.")
    assert "8e03978e" not in caplog.text.split("is unknown")[0]
