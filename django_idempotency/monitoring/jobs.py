"""The maintenance jobs as data. Tasks, the beat schedule, commands, the doctor and the dashboard read this table.

Settings may import this module, so it imports no model. A job's function has the job's name, in `maintenance`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

TASK_PREFIX: Final = "django_idempotency."
_POLLING: Final = {"max_runtime": 55.0}  # a provider that hangs must not hold one worker process after the other


@dataclass(frozen=True, slots=True)
class Job:
    """One maintenance job. `idempotency_<name>` is its command."""

    name: str  # of its function in `maintenance`, and of the row that keeps its last run
    purpose: str | Promise
    task: str = ""  # of its Celery task; empty for a job that no schedule runs
    every: int = 0  # seconds between two runs of the usual schedule
    limits: Mapping[str, Any] = field(default_factory=dict)  # the task's `Bounds`

    @property
    def late(self) -> int:
        """Seconds after which a run is missed: ten runs of the usual schedule."""
        return 10 * self.every

    @property
    def task_name(self) -> str:
        return TASK_PREFIX + self.task


JOBS: Final = (
    Job("sweep", _("Mark attempts whose lease expired as unknown, and send lost messages again."), "sweep_zombies", 60),
    Job("reconcile", _("Call the reconciler for each unknown outcome that is due."), "reconcile_unknown", 60, _POLLING),
    Job("resume", _("Continue operations whose process is gone."), "resume_operations", 60, _POLLING),
    Job(
        "reap",
        _("Delete stored responses whose retention has ended, or keep them for audit."),
        "reap_expired",
        3600,
        {"share": 0.0625},
    ),
    Job("work", _("Perform deferred operations that are due: a worker that needs no message broker.")),
)
BY_NAME: Final = {job.name: job for job in JOBS}
SCHEDULED: Final = tuple(job for job in JOBS if job.task)
