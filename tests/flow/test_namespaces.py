"""Installations and tenants that share a provider share no downstream key; the attempts of one record always do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.urls import path

from django_idempotency import Reply, json_reply, maintenance
from django_idempotency.conf import default_namespace
from django_idempotency.core.decisions import Answer
from django_idempotency.decorators import IdempotentRequest, idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.flow.attempt import Attempt, digest_of_namespace
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.operations import Op, enqueue, operation, perform
from django_idempotency.reconciliation import Landed, NotLanded, Outcome, Verdict, find_record, reconciler, resolve
from tests.kit.calls import BOOKED, a_call
from tests.kit.http import KEY
from tests.kit.records import LONG_AGO
from tests.kit.rides import Killed, World, claimed, lease_over, ride, run

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("world"),
    pytest.mark.vendor,
]

STAGING, PRODUCTION = "the secret key of staging", "the secret key of production"


class Provider:
    """One account at a provider that recognises a key: the same key is the same charge."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.breaks: list[BaseException] = []

    def charge(self, key: str | None) -> str:
        assert key is not None
        self.sent.append(key)
        if self.breaks:
            raise self.breaks.pop()
        return self.find(key) or ""

    def find(self, key: str) -> str | None:
        return f"ch_{list(dict.fromkeys(self.sent)).index(key)}" if key in self.sent else None

    @property
    def charges(self) -> int:
        return len(set(self.sent))


PROVIDER = Provider()


def pay(request: IdempotentRequest) -> HttpResponse:
    charged = PROVIDER.charge(request.idempotency.derive("charge"))
    return request.idempotency.finish(lambda: JsonResponse({"charge": charged}, status=201))


def alice(request: HttpRequest) -> str:
    return "alice"


protected = partial(idempotent, scope=alice, transaction="late")
urlpatterns = [
    path("pay/", protected(operation="tests.namespaces", not_executed=[NotExecuted])(pay)),
    path("again/", protected(operation="tests.namespaces_again", on_lost_lease="restart")(pay)),
]


@reconciler("tests.namespaces")
def ask(record: IdempotencyKey) -> Verdict:
    found = PROVIDER.find(record.derive("charge"))
    return Landed(json_reply(201, {"charge": found})) if found else NotLanded()


@operation("tests.namespaced")
def namespaced(op: Op) -> Reply:
    return json_reply(201, op.effect("charge", PROVIDER.charge, in_doubt="repeat"))


@pytest.fixture(autouse=True)
def _a_new_provider() -> None:
    PROVIDER.__init__()  # type: ignore[misc]


def post(where: str = "/pay/", key: str = KEY) -> Any:
    client = Client(raise_request_exception=False)
    return client.post(where, {}, "application/json", headers={"Idempotency-Key": key})


@contextmanager
def installed(secret: str) -> Iterator[None]:
    """Another installation, or the same one after its SECRET_KEY was rotated."""
    with override_settings(SECRET_KEY=secret):
        yield


@contextmanager
def another_database() -> Iterator[None]:
    """An installation has records of its own; what it had at the start is there again afterwards."""
    rows = list(IdempotencyKey.objects.all())
    IdempotencyKey.objects.all().delete()
    yield
    IdempotencyKey.objects.all().delete()
    IdempotencyKey.objects.bulk_create(rows)


def record() -> IdempotencyKey:
    return IdempotencyKey.objects.get()


def derived() -> str:
    return record().derive("charge")


def pay_by_request() -> None:
    assert post().status_code == 201


def pay_once() -> None:
    once(scope="payouts", key="invoice-0001", run=lambda claim: PROVIDER.charge(claim.derive("charge")))


def pay_once_atomically() -> None:
    once(scope="payouts", key="1", mode="atomic", run=lambda claim: PROVIDER.charge(claim.derive("charge")))


def pay_by_a_worker() -> None:
    assert perform(enqueue("payouts", "invoice-0001", namespaced)) is Outcome.LANDED


WAYS: list[Callable[[], None]] = [pay_by_request, pay_once, pay_once_atomically, pay_by_a_worker]


@pytest.mark.parametrize("way", WAYS)
def test_two_environments_send_different_keys(way: Callable[[], None]) -> None:
    with installed(STAGING):
        way()
        assert PROVIDER.sent == [derived()]
    with installed(PRODUCTION), another_database():
        way()
        assert PROVIDER.sent[1:] == [derived()]
    assert PROVIDER.charges == 2


@pytest.mark.parametrize("way", WAYS)
def test_two_schemas_send_different_keys(way: Callable[[], None], settings: Any) -> None:
    schemas = ["beta", "acme"]
    settings.IDEMPOTENCY = {"ENQUEUE": None, "NAMESPACE": lambda: schemas[-1]}
    way()
    with another_database():
        schemas.pop()
        way()
    assert PROVIDER.charges == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_claim_that_was_lost_and_made_again_sends_the_same_key(way: Callable[[], None], settings: Any) -> None:
    settings.IDEMPOTENCY = {"ENQUEUE": None, "NAMESPACE": "production"}
    for secret in (STAGING, PRODUCTION):
        with installed(secret), another_database():
            way()
    assert PROVIDER.charges == 1


def test_the_reconciler_finds_the_charge_that_was_made_before_the_rotation() -> None:
    PROVIDER.breaks.append(ConnectionError())
    assert post().status_code == 500
    assert record().status == "unknown"

    with installed("rotated"):
        assert maintenance.reconcile() == {"landed": 1}
        assert post().json() == {"charge": "ch_0"}
    assert len(PROVIDER.sent) == 1


def test_a_take_over_after_the_rotation_sends_the_same_key() -> None:
    PROVIDER.breaks.append(ConnectionError())
    assert post("/again/").status_code == 500
    with installed("rotated"):
        assert post("/again/").status_code == 201
        assert set(PROVIDER.sent) == {derived()}
    assert len(PROVIDER.sent) == 2


def test_a_retry_after_the_rotation_sends_the_same_key() -> None:
    PROVIDER.breaks.append(NotExecuted())
    post()
    assert record().status == "failed_retryable"
    with installed("rotated"):
        assert post().status_code == 201
        assert set(PROVIDER.sent) == {derived()}
    assert len(PROVIDER.sent) == 2


def test_a_key_that_runs_as_new_sends_the_same_key_after_the_rotation() -> None:
    assert post().status_code == 201
    IdempotencyKey.objects.update(expires_at=LONG_AGO)
    with installed("rotated"):
        assert post().json() == {"charge": "ch_0"}
        assert set(PROVIDER.sent) == {derived()}
    assert len(PROVIDER.sent) == 2


def test_a_restored_backup_keeps_the_namespaces_of_its_records(settings: Any) -> None:
    with installed(PRODUCTION):
        PROVIDER.breaks.append(ConnectionError())
        assert post("/again/").status_code == 500
    with installed(STAGING):
        assert post("/again/").json() == {"charge": "ch_0"}, "the charge of the record's own installation"
        assert post("/again/", key=f"{KEY}-of-staging").json() == {"charge": "ch_1"}
    mine, other = IdempotencyKey.objects.order_by("created_at")
    assert mine.namespace != other.namespace


@pytest.mark.parametrize("mode", ["atomic", "leased"])
def test_an_attempt_and_its_record_derive_one_key(mode: str) -> None:
    seen: list[str] = []

    def work(claim: Claim) -> None:
        seen.append(claim.derive("charge"))

    with installed(PRODUCTION):
        once(scope="payouts", key="1", mode=mode, run=work)
    IdempotencyKey.objects.update(expires_at=LONG_AGO)
    with installed("rotated"):
        once(scope="payouts", key="1", mode=mode, run=work)
        assert [*seen, derived()] == [seen[0]] * 3


def test_atomic_mode_continues_in_the_namespace_of_what_a_leased_attempt_left() -> None:
    seen: list[str] = []

    def work(claim: Claim) -> None:
        seen.append(claim.derive("charge"))
        if len(seen) == 1:
            raise NotExecuted

    with pytest.raises(NotExecuted):
        once(scope="payouts", key="1", run=work, not_executed=[NotExecuted])
    with installed("rotated"):
        once(scope="payouts", key="1", mode="atomic", run=work)
    assert seen == [derived()] * 2


def test_atomic_mode_derives_one_key_however_often_it_rolls_back(settings: Any) -> None:
    settings.IDEMPOTENCY = {"NAMESPACE": "production"}
    call = a_call(mode="atomic")
    seen: list[str] = []

    def work(attempt: Attempt) -> tuple[str, Reply]:
        seen.append(Claim(attempt, late=False).derive("charge"))
        if len(seen) == 1:
            raise ZeroDivisionError
        return "done", BOOKED

    with pytest.raises(ZeroDivisionError):
        run_call(call, work)
    assert not IdempotencyKey.objects.exists()
    with installed("rotated"):
        outcome: str | Answer = run_call(call, work)
    assert (outcome, seen) == ("done", [derived()] * 2)


@pytest.mark.parametrize("how", ["resumer", "retry"])
def test_an_operation_goes_on_with_its_keys_in_a_process_with_another_secret(world: World, how: str) -> None:
    world.kill_at = "after the charge"
    with pytest.raises(Killed):
        run(claimed(KEY), ride, user=7)
    lease_over()
    with installed("rotated"):
        if how == "retry":
            assert run(claimed(KEY), ride, user=7).status == 201
        else:
            assert maintenance.sweep() == {"unknown": 1}
            assert maintenance.resume() == {"landed": 1}
        assert world.sent == [record().derive("charged")] * 2


def test_queued_work_keeps_the_namespace_of_its_caller(settings: Any) -> None:
    tenant = "acme"
    settings.IDEMPOTENCY = {"ENQUEUE": None, "NAMESPACE": lambda: tenant}
    message = enqueue("payouts", "invoice-0001", namespaced)
    accepted = derived()
    tenant = "of the worker"
    assert perform(message) is Outcome.LANDED
    assert PROVIDER.sent == [accepted]


def test_work_queued_again_after_its_retention_keeps_its_key() -> None:
    pay_by_a_worker()
    IdempotencyKey.objects.update(expires_at=LONG_AGO)
    with installed("rotated"):
        pay_by_a_worker()
    assert PROVIDER.sent == [derived()] * 2


def test_once_taken_over_after_the_rotation_sends_the_same_key() -> None:
    def work(claim: Claim) -> str:
        return PROVIDER.charge(claim.derive("charge"))

    PROVIDER.breaks.append(Killed())
    with pytest.raises(Killed):
        once(scope="payouts", key="1", on_lost_lease="restart", run=work)
    IdempotencyKey.objects.filter(status="in_progress").update(locked_until=F("created_at"))
    with installed("rotated"):
        assert once(scope="payouts", key="1", on_lost_lease="restart", run=work) == "ch_0"
    assert PROVIDER.sent == [derived()] * 2


def test_a_downstream_key_leads_to_its_record_after_the_rotation() -> None:
    PROVIDER.breaks.append(ConnectionError())
    post()
    (sent,) = PROVIDER.sent
    with installed("rotated"):
        found = find_record(sent)
        assert found is not None
        assert found.id == record().id
        assert resolve(sent, Landed(json_reply(201, {})), by="gateway") is Outcome.LANDED


def test_a_webhook_about_another_environments_charge_settles_nothing() -> None:
    """Both environments have a webhook at the one account, so each hears of the charges of both."""
    with installed(STAGING), another_database():
        assert post().status_code == 201
    (of_staging,) = PROVIDER.sent
    with installed(PRODUCTION):
        PROVIDER.breaks.append(ConnectionError())
        post()
        assert of_staging[:36] == str(record().id), "the same scope and key"
        assert find_record(of_staging) is None
        assert resolve(of_staging, Landed(json_reply(201, {})), by="gateway") is Outcome.ABSENT
        assert resolve(of_staging, NotLanded(), by="ops", reason="seen", operator=True) is Outcome.ABSENT
    assert record().status == "unknown"


@pytest.mark.parametrize("unusable", ["", None, 7, b"acme", "x" * 256])
def test_a_namespace_that_is_no_text_refuses_the_request_before_anything_is_claimed(
    unusable: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.IDEMPOTENCY = {"NAMESPACE": lambda: unusable}
    assert post().status_code == 500
    assert "IDEMPOTENCY['NAMESPACE']" in caplog.text
    assert (PROVIDER.sent, IdempotencyKey.objects.count()) == ([], 0)


def test_a_function_that_raises_refuses_the_request_before_anything_is_claimed(settings: Any) -> None:
    def no_tenant() -> str:
        raise LookupError("no tenant")

    settings.IDEMPOTENCY = {"NAMESPACE": no_tenant}
    assert post().status_code == 500
    assert (PROVIDER.sent, IdempotencyKey.objects.count()) == ([], 0)


def test_the_default_may_be_written_down_before_a_rotation(settings: Any) -> None:
    """What the setting would be called if it were written out: with it, a rotation changes no new key either."""
    with installed(PRODUCTION):
        pinned, before = default_namespace(), digest_of_namespace()
    settings.IDEMPOTENCY = {"NAMESPACE": pinned}
    with installed("rotated"):
        assert digest_of_namespace() == before
