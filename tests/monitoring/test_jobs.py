"""One table of maintenance jobs: everything that is named in it exists."""

from __future__ import annotations

import pytest
from celery import current_app
from django.core.management import get_commands, load_command_class

from django_idempotency import maintenance, tasks
from django_idempotency.management.jobs import JobCommand
from django_idempotency.monitoring.jobs import JOBS, SCHEDULED, Job

pytestmark = pytest.mark.vendor


@pytest.mark.django_db
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_has_its_function_and_its_command(job: Job) -> None:
    assert job.name in maintenance.__all__
    assert getattr(maintenance, job.name)(maintenance.Bounds(**job.limits)) == {}
    command = load_command_class("django_idempotency", f"idempotency_{job.name}")
    assert isinstance(command, JobCommand)
    assert command.help == str(job.purpose)


def test_every_job_command_is_in_the_table() -> None:
    ours = [name for name, app in get_commands().items() if app == "django_idempotency" and "install" not in name]
    jobs = [name for name in ours if isinstance(load_command_class("django_idempotency", name), JobCommand)]
    assert set(jobs) == {f"idempotency_{job.name}" for job in JOBS}


@pytest.mark.django_db
@pytest.mark.parametrize("job", SCHEDULED, ids=lambda job: job.name)
def test_a_scheduled_job_has_its_task(job: Job) -> None:
    task = getattr(tasks, job.task)
    assert (task.name, task.ignore_result) == (job.task_name, True)
    assert job.task_name in current_app.tasks
    assert task() == {}


def test_the_names_and_intervals_of_the_schedule_do_not_change() -> None:
    """Entries of deployments are known by these names."""
    assert {name: (entry["task"], entry["schedule"]) for name, entry in tasks.beat_schedule().items()} == {
        "django_idempotency.sweep_zombies": ("django_idempotency.sweep_zombies", 60.0),
        "django_idempotency.reconcile_unknown": ("django_idempotency.reconcile_unknown", 60.0),
        "django_idempotency.resume_operations": ("django_idempotency.resume_operations", 60.0),
        "django_idempotency.reap_expired": ("django_idempotency.reap_expired", 3600.0),
    }
    assert {job.name: job.late for job in SCHEDULED} == {
        "sweep": 600, "reconcile": 600, "resume": 600, "reap": 36_000
    }  # fmt: skip
