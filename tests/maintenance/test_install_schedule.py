"""django-celery-beat gets the jobs, and keeps what an admin edited."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_idempotency.tasks import beat_schedule

pytest.importorskip("django_celery_beat", reason="NOT TESTED: django-celery-beat allows no Django as new as this one")


def installed(*arguments: str) -> Any:
    said = StringIO()
    call_command("idempotency_install_schedule", "--json", *arguments, stdout=said)
    return json.loads(said.getvalue())


@pytest.mark.django_db
def test_what_is_missing_is_added_and_what_was_edited_is_kept() -> None:
    from django_celery_beat.models import PeriodicTask

    assert installed("--dry-run")["added"] == sorted(beat_schedule())
    assert not PeriodicTask.objects.exists()
    assert installed() == {"added": sorted(beat_schedule()), "kept": []}
    sweep = PeriodicTask.objects.get(task="django_idempotency.sweep_zombies")
    assert (sweep.interval.every, sweep.expire_seconds) == (60, 60)
    PeriodicTask.objects.filter(pk=sweep.pk).update(enabled=False)

    assert installed() == {"added": [], "kept": sorted(beat_schedule())}
    assert PeriodicTask.objects.get(pk=sweep.pk).enabled is False


@pytest.mark.django_db
def test_a_turn_that_is_there_twice_is_no_error() -> None:
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    first, _second = (IntervalSchedule.objects.create(every=60, period=IntervalSchedule.SECONDS) for _ in range(2))
    assert installed()["added"] == sorted(beat_schedule())
    assert PeriodicTask.objects.get(task="django_idempotency.sweep_zombies").interval == first
