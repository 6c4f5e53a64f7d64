"""The health of the records, as a function and as a view."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import include, path

from django_idempotency import maintenance
from django_idempotency.flow.finish import doubt
from django_idempotency.maintenance import health
from django_idempotency.models import IdempotencyKey, MaintenanceRun
from django_idempotency.reconciliation import Inconclusive, reconciler
from django_idempotency.store import attempts, verdicts
from django_idempotency.store.operations import StoredOperation
from tests.kit.databases import nobody_answers
from tests.kit.http import atomic_requests
from tests.kit.records import OPERATION, claimed

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.vendor]
urlpatterns = [
    path("idempotency/", include("django_idempotency.urls")),
    path("internal/health/", include("django_idempotency.health_urls")),
]


def asked(client: Client) -> tuple[int, Any]:
    answer = client.get("/internal/health/")
    return answer.status_code, answer.json()


def test_nothing_to_complain_about(client: Client) -> None:
    claimed()
    maintenance.sweep()
    status, said = asked(client)
    assert (status, said["healthy"], said["complaints"]) == (200, True, [])
    assert said["jobs"]["sweep"]["error"] == ""


@pytest.mark.parametrize(("late", "status"), [(599, 200), (620, 503)])
def test_a_sweeper_that_does_not_come(client: Client, late: int, status: int) -> None:
    attempt = claimed()
    IdempotencyKey.objects.filter(id=attempt.call.id).update(locked_until=F("created_at") - timedelta(seconds=late))
    found = asked(client)
    assert found[0] == status
    assert found[1]["overdue"] == 1


@pytest.mark.parametrize(("late", "status"), [(590, 200), (620, 503)])
@pytest.mark.parametrize("tried", [False, True])
def test_work_that_no_worker_begins(client: Client, late: int, status: int, tried: bool) -> None:
    """Also while the sweeper sends its message again and again."""
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.health", "{}", "{}", 0), 60)
    code = "NotExecuted" if tried else ""  # waits for its turn, each time longer
    waiting = F("created_at") - timedelta(seconds=late)
    IdempotencyKey.objects.update(last_run_at=waiting, last_error_code=code)
    found = asked(client)
    assert found[0] == (200 if tried else status)
    assert (found[1]["overdue"], found[1]["oldest_waiting"] is None) == (0, tried)


@pytest.mark.parametrize(("late", "status"), [(4190, 200), (4230, 503)])
def test_work_that_was_put_back_and_that_no_worker_comes_back_to(
    client: Client, settings: Any, late: int, status: int
) -> None:
    """The longest wait between two tries is no complaint; ten minutes more are."""
    settings.IDEMPOTENCY = {"RECONCILE_BACKOFF_MAX": 3600}
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.health", "{}", "{}", 0), 60)
    IdempotencyKey.objects.update(last_run_at=F("created_at") - timedelta(seconds=late), last_error_code="NotExecuted")
    assert asked(client)[0] == status
    settings.IDEMPOTENCY = {"RECONCILE_BACKOFF_MAX": timedelta.max}
    assert asked(client)[0] == 200


@pytest.mark.usefixtures("registrations")
def test_doubts_are_told_and_dead_letters_are_a_complaint(client: Client, settings: Any) -> None:
    settings.IDEMPOTENCY = {"RECONCILE_TRIES": 1}
    attempt = claimed()
    doubt(attempt, "test")
    assert asked(client)[0] == 503, "nobody will ask about it"
    reconciler(OPERATION)(lambda record: Inconclusive())
    assert asked(client)[1]["unknown"] == 1
    assert asked(client)[0] == 200
    maintenance.reconcile()
    status, said = asked(client)
    assert (status, said["dead_letters"], said["unknown"]) == (503, 1, 0)
    assert verdicts.dismiss(attempt.ref) is False, "grace"


def test_a_job_that_failed_is_a_complaint() -> None:
    MaintenanceRun.objects.create(job="reap", error="OperationalError: disk full")
    assert health().complaints == ["The last run of reap failed: OperationalError: disk full"]


SECRET = "connection to server at 10.0.0.7 failed: password authentication failed for user shop"


def test_the_status_view_does_not_bring_the_health_view_along(client: Client) -> None:
    assert client.get("/idempotency/health/").status_code == 404


def test_strangers_see_the_class_of_an_error_alone(client: Client) -> None:
    MaintenanceRun.objects.create(job="reap", error=f"OperationalError: {SECRET}")
    status, said = asked(client)
    assert (status, said["complaints"]) == (503, ["The last run of reap failed: OperationalError"])
    assert said["jobs"]["reap"]["error"] == "OperationalError"
    assert "10.0.0.7" not in str(said)


@pytest.mark.parametrize(("rights", "sees"), [({}, False), ({"is_staff": True}, True)])
@pytest.mark.parametrize("active", [True, False])
def test_staff_see_its_message(client: Client, rights: Any, sees: bool, active: bool) -> None:
    MaintenanceRun.objects.create(job="reap", error=f"OperationalError: {SECRET}")
    client.force_login(User.objects.create(username="ops", is_active=active, **rights))
    assert (SECRET in str(asked(client)[1])) is (sees and active)


@pytest.mark.parametrize("around", [False, True])
def test_a_store_that_does_not_answer(client: Client, around: bool) -> None:
    """Also where Django would open a transaction before the view."""
    with atomic_requests(around), nobody_answers():
        status, said = asked(client)
    assert (status, said["complaints"]) == (503, ["The store does not answer."])


def test_a_health_check_makes_five_queries(client: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        asked(client)
    assert len(queries) == 5
