"""An exception of the view reaches the project as the view raised it, whatever the mode."""

import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import Error, IntegrityError, close_old_connections, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from tests.kit.http import KEY

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_database_error_keeps_the_drivers_cause(mode: str, rf: RequestFactory) -> None:
    """The project tells constraints apart by it, and what walks the causes comes to an end."""

    @idempotent(mode=mode, operation="tests.twice", share_anonymous=True)
    def view(request: HttpRequest) -> HttpResponse:
        for _ in range(2):
            User.objects.create(username="taken")
        raise AssertionError

    with pytest.raises(IntegrityError) as raised:
        view(rf.post("/it", headers={"Idempotency-Key": KEY}))
    cause: Any = raised.value.__cause__
    assert cause is not raised.value
    assert type(cause).__module__.split(".")[0] in ("sqlite3", "psycopg", "pymysql", "MySQLdb")
    assert "username" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_store_that_is_away_keeps_its_cause(mode: str) -> None:
    def ask_another_store(claim: Claim) -> None:
        raise StoreUnavailable from OSError("The other store did not answer.")

    with pytest.raises(StoreUnavailable) as raised:
        once(scope="tests", key=KEY, run=ask_another_store, mode=mode)
    assert isinstance(raised.value.__cause__, OSError)


# The connection of the view's transaction is closed


def post(settings: Any, view: Any) -> Any:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    return Client(raise_request_exception=False).post("/it", headers={"Idempotency-Key": KEY})


def close_and_return() -> None:
    connection.close()


def close_old_ones_and_return() -> None:
    close_old_connections()


def close_and_ask() -> None:
    connection.close()
    User.objects.exists()


CLOSINGS = [close_and_return, close_old_ones_and_return, close_and_ask]


@pytest.mark.parametrize("policy", [{"mode": "atomic"}, {}, {"transaction": "late"}], ids=["atomic", "whole", "late"])
@pytest.mark.parametrize("close", CLOSINGS, ids=lambda each: each.__name__)
def test_a_view_that_closes_its_connection_is_told_so(
    close: Any, policy: dict[str, Any], settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And its client is not told that the view did not run."""

    @idempotent(operation="tests.closing", share_anonymous=True, **policy)
    def view(request: Any) -> HttpResponse:
        def write() -> HttpResponse:
            User.objects.create(username="written")
            close()
            return HttpResponse(status=201)

        return request.idempotency.finish(write) if "transaction" in policy else write()

    assert post(settings, view).status_code == 500
    assert "close_old_connections()" in caplog.text
    assert not User.objects.exists()
    statuses = [*IdempotencyKey.objects.values_list("status", flat=True)]
    assert statuses == ([] if policy.get("mode") == "atomic" else ["unknown"])


@pytest.mark.parametrize("close", CLOSINGS, ids=lambda each: each.__name__)
def test_work_in_once_that_closes_its_connection_is_told_so(close: Any) -> None:
    with pytest.raises(Error) as raised:
        once(scope="tests", key=KEY, run=lambda claim: close(), mode="atomic")
    assert "close_old_connections()" in "".join(traceback.format_exception(raised.value))


def test_a_store_that_the_view_asks_for_itself_is_the_views_error(settings: Any) -> None:
    @idempotent(operation="tests.asking", mode="atomic", share_anonymous=True)
    def view(request: HttpRequest) -> HttpResponse:
        raise StoreUnavailable

    assert post(settings, view).status_code == 500


# Durable transactions


def durable_block(request: Any) -> HttpResponse:
    with transaction.atomic(durable=True):
        return HttpResponse(status=204)


durable_view = transaction.atomic(durable=True)(lambda request: HttpResponse(status=204))


@pytest.mark.parametrize("policy", [{"mode": "atomic"}, {}, {"on_error": "store"}], ids=["atomic", "whole", "store"])
@pytest.mark.parametrize("durable", [durable_block, durable_view], ids=["block", "decorator"])
def test_a_durable_transaction_frees_the_key_and_names_the_way_out(
    durable: Any, policy: dict[str, Any], settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    view = idempotent(operation="tests.durable", share_anonymous=True, **policy)(durable)
    assert post(settings, view).status_code == 500
    assert "transaction='late'" in caplog.text
    assert not IdempotencyKey.objects.exclude(status="failed_retryable").exists()
    late = idempotent(operation="tests.durable", share_anonymous=True, transaction="late")(durable)
    assert post(settings, late).status_code == 204


def test_a_durable_transaction_after_a_call_leaves_the_outcome_unknown(settings: Any) -> None:
    def view(request: Any) -> HttpResponse:
        request.idempotency.derive("charge")
        return durable_block(request)

    assert post(settings, idempotent(operation="tests.durable", share_anonymous=True)(view)).status_code == 500
    assert IdempotencyKey.objects.get().status == "unknown"


# A 503 of the layer


@pytest.fixture
def no_table() -> Iterator[None]:
    name = connection.ops.quote_name
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name('idempotency_key')} RENAME TO {name('elsewhere')}")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name('elsewhere')} RENAME TO {name('idempotency_key')}")


@pytest.mark.usefixtures("no_table")
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_forgotten_migrations_are_named_in_the_log_and_in_debug(
    mode: str, debug: bool, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.DEBUG = debug

    @idempotent(operation="tests.migrate", mode=mode, share_anonymous=True)
    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError

    told = post(settings, view)
    assert (told.status_code, told.json()["code"]) == (503, "idempotency_store_unavailable")
    assert ("manage.py migrate" in told.json()["detail"]) is debug
    (logged,) = [each for each in caplog.records if each.exc_info and each.name == "django_idempotency"]
    assert "manage.py migrate" in caplog.text
    assert logged.levelname == "ERROR"
