"""What the dashboard says first: what is wrong, and what to do, a sentence each."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_idempotency.console.dashboard.numbers import Figures
from django_idempotency.console.wording import number, span
from django_idempotency.core.states import Status
from django_idempotency.monitoring.findings import DOUBT_SECONDS, LATE_SECONDS
from django_idempotency.monitoring.health import LATE_SECONDS as SWEEP_LATE_SECONDS

DUTIES: Final = {
    "sweep": gettext_lazy("sweep: expired leases become unknown"),
    "reconcile": gettext_lazy("reconcile: doubts are asked about"),
    "resume": gettext_lazy("resume: interrupted operations go on"),
    "reap": gettext_lazy("reap: expired answers are deleted"),
}


def complaints(found: Figures) -> Iterator[str]:
    """Nothing, when all is well; the most urgent first."""
    dead = found.states[Status.DEAD_LETTER]
    if dead:
        said = ngettext(
            "%s outcome needs a person: reconciliation gave up on it.",
            "%s outcomes need a person: reconciliation gave up on them.",
            dead,
        )
        yield said % number(dead)
    if found.oldest_doubt is not None and found.oldest_doubt > DOUBT_SECONDS:
        said = _("The oldest doubt is %s old: does its operation have a reconciler, and does the provider answer it?")
        yield said % span(found.oldest_doubt)
    if found.longest_overdue is not None and found.longest_overdue > SWEEP_LATE_SECONDS:
        yield _("A lease ran out %s ago and no sweeper came by: does one run?") % span(found.longest_overdue)
    yield from _late({run["duty"]: run for run in found.duties})
    for name, operation in sorted(found.operations.items()):
        if not operation.has_room and operation.slowest_hundredth is not None:
            said = _("%(name)s: the lease of %(lease)s is short; one of a hundred runs takes %(slow)s or more.")
            yield said % {
                "name": name,
                "lease": span(operation.lease),
                "slow": span(operation.slowest_hundredth),
            }


def said_of_duty(runs: Mapping[str, dict[str, Any]]) -> Iterator[list[str]]:
    """For each duty: its name, when it last ended, and what it did or what stopped it."""
    for duty in (*DUTIES, *(name for name in runs if name not in DUTIES)):
        run = runs.get(duty, {})
        ended = run.get("finished_ago")
        said = _("never") if ended is None else _("%s ago") % span(ended)
        yield [str(DUTIES.get(duty, duty)), said, run.get("error") or _result(run.get("counts") or "{}")]


def _late(runs: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    for duty, late in LATE_SECONDS.items():
        run = runs.get(duty, {})
        ended = run.get("finished_ago")
        if run.get("error"):
            yield _("The last run of %(duty)s failed: %(error)s") % {"duty": duty, "error": run["error"]}
        elif ended is None:
            yield _("%s has never run to its end: schedule it with Celery beat or cron.") % duty
        elif ended > late:
            said = _("%(duty)s last ended %(ago)s ago: is what schedules it still running?")
            yield said % {"duty": duty, "ago": span(ended)}


def _result(counts: str) -> str:
    done = {name: count for name, count in json.loads(counts).items() if count}
    return ", ".join(f"{name.replace('_', ' ')} {number(count)}" for name, count in done.items()) or _("nothing to do")
