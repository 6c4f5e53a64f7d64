"""`assert_idempotent`: makes every check of one endpoint, and reports what it checked."""

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from django_idempotency.core.links import docs_url
from django_idempotency.testing.clients import IdempotentClient
from django_idempotency.testing.endpoint_checks import ENDPOINT_CHECKS, PRIVATE
from django_idempotency.testing.messages import UntestedWarning
from django_idempotency.testing.provider import FakeProvider
from django_idempotency.testing.trial import Send, Trial, count_rows


@dataclass
class Report:
    """The checks that passed, and the checks that were not made, with the reason."""

    checked: list[str] = field(default_factory=list)
    untested: dict[str, str] = field(default_factory=dict)


def assert_idempotent(
    call: Send,
    *,
    client: Any = None,
    other: Any = None,
    effects: Callable[[], int] | None = None,
    different: Send | None = None,
    provider: FakeProvider | None = None,
    public: bool = False,
    varying: Collection[str] = (),
    skip: Collection[str] = (),
) -> Report:
    """Raise NotIdempotent unless the retries of a request have no further effect and get the first response.

    `call` sends the request through the client that it is given. The report lists the checks that could not be made,
    and each of them causes a warning.
    """
    trial = Trial(
        call, client or IdempotentClient(), other, effects or count_rows, different, provider,
        frozenset(name.lower() for name in varying),
    )  # fmt: skip
    if unknown := set(skip) - set(ENDPOINT_CHECKS):
        raise ValueError(f"There is no check {', '.join(sorted(unknown))}. The checks: {', '.join(ENDPOINT_CHECKS)}.")
    report = Report()
    for name, check in ENDPOINT_CHECKS.items():
        if name in skip or (public and name in PRIVATE):
            continue
        reason = check(trial)
        if reason:
            report.untested[name] = reason
        else:
            report.checked.append(name)
    for name, reason in report.untested.items():
        page = docs_url("reference/testing", "what-was-not-tested")
        warnings.warn(UntestedWarning(f"NOT TESTED: {name}: {reason}. See {page}"), stacklevel=2)
    return report
