"""How the records are doing: cheap questions with an answer that a monitor can read."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Max, Min, QuerySet

from django_idempotency.conf import conf
from django_idempotency.core.audit import Kind
from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.models import DutyRun, IdempotencyEvent, IdempotencyKey
from django_idempotency.store.database import alias

LATE_SECONDS: Final = 600  # ten sweeps of the usual schedule
LONGEST_WAIT: Final = timedelta(days=365)  # what a database can subtract


@dataclass(frozen=True, slots=True)
class Health:
    """What a monitor wants to know."""

    overdue: int  # leases that ran out and that no sweeper has seen yet
    oldest_overdue: float | None  # seconds
    oldest_waiting: float | None  # seconds since work was accepted, or put back, that no worker has begun
    unknown: int
    resumable: int  # of those, operations that the resumer goes on with
    oldest_unknown: float | None  # seconds since the key was first claimed
    dead_letters: int
    duties: dict[str, dict[str, Any]]

    @property
    def complaints(self) -> list[str]:
        """What a person should look at; empty when all is well."""
        said = []
        if self.oldest_overdue is not None and self.oldest_overdue > LATE_SECONDS:
            said.append(
                f"A lease ran out, or work was due, {self.oldest_overdue:.0f} s ago and nobody came by: "
                "does the sweeper run, and a worker?"
            )
        if self.oldest_waiting is not None and self.oldest_waiting > LATE_SECONDS:
            said.append(
                f"Accepted work has waited for {self.oldest_waiting:.0f} s and no worker has begun it: "
                "does one run, and does it read this queue?"
            )
        if self.dead_letters:
            said.append(f"Outcomes that need a person, because reconciliation gave up: {self.dead_letters}.")
        said += [f"The last {duty} failed: {run['error']}" for duty, run in self.duties.items() if run["error"]]
        return said

    def as_json(self) -> dict[str, Any]:
        return {"healthy": not self.complaints, "complaints": self.complaints, **asdict(self)}


def health(using: str | None = None) -> Health:
    """Every query here is answered from a small index or a small table."""
    using = using or alias()
    keys = IdempotencyKey.objects.using(using)
    overdue, unknown = keys.overdue(), keys.filter(reconcile_after__isnull=False)
    return Health(
        overdue=overdue.count(),
        oldest_overdue=_age(overdue, "locked_until"),
        oldest_waiting=_age(keys.waiting(_longest_silence()), "last_run_at"),
        unknown=unknown.count(),
        resumable=unknown.resumable().count(),
        oldest_unknown=_age(unknown, "created_at"),
        dead_letters=dead_letters(using).count(),
        duties={run["duty"]: run for run in duties(using)},
    )


def _longest_silence() -> timedelta:
    """Since the last run of work that was put back, where a worker comes by."""
    return timedelta(seconds=LATE_SECONDS) + min(conf.RECONCILE_BACKOFF_MAX, LONGEST_WAIT)


def dead_letters(using: str) -> QuerySet[IdempotencyKey]:
    return only_dead_letters(IdempotencyKey.objects.using(using))


def only_dead_letters(rows: QuerySet[IdempotencyKey]) -> QuerySet[IdempotencyKey]:
    """Found through their events: few rows, where the keys are many."""
    noted = IdempotencyEvent.objects.using(rows.db).filter(kind=Kind.DEAD_LETTER).values("record_id")
    return rows.filter(id__in=noted, status=Status.DEAD_LETTER)


def _age(rows: QuerySet[IdempotencyKey], column: str) -> float | None:
    found = rows.aggregate(oldest=Min(column), now=Max(StatementNow()))
    return (found["now"] - found["oldest"]).total_seconds() if found["oldest"] else None


def duties(using: str) -> list[dict[str, Any]]:
    """When each duty last ended, what it did, and what stopped it."""
    runs = DutyRun.objects.using(using).annotate(now=StatementNow()).order_by("duty")
    return [
        {
            "duty": run.duty,
            "finished_ago": (run.now - run.finished_at).total_seconds() if run.finished_at else None,
            "counts": run.counts,
            "error": run.error,
        }
        for run in runs
    ]
