"""Every system check, provoked; each says what is wrong and what to do."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections, models
from pytest_django import Settings

from django_idempotency.checks.project import check_database, check_pointers, check_settings
from django_idempotency.store.deletion import pointers
from testproject.payments.models import Payment
from tests.kit.databases import another_alias

SECRET = b"sixteen bytes ok"


class Elsewhere:
    """A router that sends the records to another alias."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "elsewhere" if model._meta.app_label == "django_idempotency" else None


def only(messages: list[CheckMessage]) -> CheckMessage:
    (message,) = messages
    assert message.hint
    return message


def test_a_good_setup_has_nothing_to_say(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"LEASE": 60, "PROFILE": "stripe"}
    assert check_settings(None) == []
    assert check_database(None) == []
    call_command("check")


@pytest.mark.parametrize("given", [None, [], "LEASE=5"])
def test_e001_not_a_dictionary(given: Any, settings: Settings) -> None:
    settings.IDEMPOTENCY = given
    assert only(check_settings(None)).id == "django_idempotency.E001"


@pytest.mark.parametrize(
    ("entry", "meant"),
    [("LEESE", "LEASE"), ("lease", "LEASE"), ("RETENTON", "RETENTION"), ("LEASE_SECONDS", "LEASE")],
)
def test_e002_a_typing_error_is_told_what_was_meant(entry: str, meant: str, settings: Settings) -> None:
    settings.IDEMPOTENCY = {entry: 5}
    message = only(check_settings(None))
    assert (message.id, message.hint) == ("django_idempotency.E002", f"Did you mean {meant!r}?")
    assert repr(entry) in message.msg


@pytest.mark.parametrize("entry", ["ZZZZZZ", 5, None])
def test_e002_what_nothing_resembles_gets_the_list(entry: Any, settings: Settings) -> None:
    settings.IDEMPOTENCY = {entry: 5}
    message = only(check_settings(None))
    assert message.id == "django_idempotency.E002"
    assert "LEASE, GRACE" in (message.hint or "")


def test_e003_a_wrong_value(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"LEASE": "5 minutes", "EXPIRY": "later", "SECRETS": {1: SECRET}, "GRACE": float("inf")}
    found = check_settings(None)
    assert [message.id for message in found] == ["django_idempotency.E003"] * 4
    assert all(message.hint for message in found)
    assert "LEASE" in found[0].msg


async def a_coroutine() -> str:
    return "acme"


@pytest.mark.parametrize(
    ("unusable", "told"),
    [
        ("", "1 to 255 printable characters"),
        ("x" * 256, "1 to 255 printable characters"),
        (b"acme", "1 to 255 printable characters"),
        (a_coroutine, "coroutine function"),
        (partial(a_coroutine), "coroutine function"),
        (lambda request: "acme", "without arguments"),
    ],
)
def test_e003_a_namespace_that_separates_nothing(unusable: Any, told: str, settings: Settings) -> None:
    settings.IDEMPOTENCY = {"NAMESPACE": unusable}
    message = only(check_settings(None))
    assert message.id == "django_idempotency.E003"
    assert "IDEMPOTENCY['NAMESPACE']" in message.msg
    assert told in message.msg
    assert message.hint


@pytest.mark.parametrize("usable", ["acme", lambda: "acme", partial(str, "acme"), str, None])
def test_a_namespace_that_may_be_used(usable: Any, settings: Settings) -> None:
    settings.IDEMPOTENCY = {"NAMESPACE": usable}
    assert check_settings(None) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"LEASE": 0}, "lease"),
        ({"GRACE": 1.5}, "grace"),
        ({"ATTEMPTS": 0}, "attempts"),
        ({"AFTER_EXPIRY": "gone"}, "after_expiry"),
        ({"CLAIM_LIMIT": 0.001}, "claim_limit"),
    ],
)
def test_e004_a_value_that_no_policy_can_have(given: Any, named: str, settings: Settings) -> None:
    settings.IDEMPOTENCY = given
    message = only(check_settings(None))
    assert message.id == "django_idempotency.E004"
    assert named in message.msg


def test_e010_a_database_that_is_not_supported(settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [Elsewhere()]
    with another_alias("elsewhere"):
        connections["elsewhere"].vendor = "oracle"
        message = only(check_database(None))
    assert message.id == "django_idempotency.E010"
    assert "oracle" in message.msg
    assert "postgresql" in (message.hint or "")


@pytest.mark.parametrize("mode", [None, "DEFERRED", "deferred"])
def test_w011_sqlite_with_deferred_transactions(mode: str | None, settings: Settings) -> None:
    message = only(checked_on_sqlite({"transaction_mode": mode}, settings))
    assert message.id == "django_idempotency.W011"
    assert "IMMEDIATE" in (message.hint or "")


def test_w011_sqlite_without_a_transaction_mode(settings: Settings) -> None:
    assert only(checked_on_sqlite({}, settings)).id == "django_idempotency.W011"


@pytest.mark.parametrize("mode", ["IMMEDIATE", "immediate", "EXCLUSIVE"])
def test_w011_is_silent_where_transactions_begin_with_the_lock(mode: str, settings: Settings) -> None:
    assert checked_on_sqlite({"transaction_mode": mode}, settings) == []


def checked_on_sqlite(options: dict[str, Any], settings: Settings) -> list[CheckMessage]:
    settings.DATABASE_ROUTERS = [Elsewhere()]
    with another_alias("elsewhere", OPTIONS=options):
        connections["elsewhere"].vendor = "sqlite"
        return check_database(None)


@pytest.mark.parametrize(
    ("pool", "limit", "seconds"),
    [
        (None, 2, None),
        (False, 2, None),
        (True, 2, "30 s"),
        ({}, 2, None),
        ({"min_size": 2}, 2, "30 s"),
        ({"timeout": 2}, 2, None),
        ({"timeout": 2.5}, 2, "2.5 s"),
        ({"timeout": 30}, 30, None),
    ],
)
def test_w012_a_pool_that_lets_requests_wait(pool: Any, limit: int, seconds: str | None, settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [Elsewhere()]
    settings.IDEMPOTENCY = {"CLAIM_LIMIT": limit}
    with another_alias("elsewhere", OPTIONS={"transaction_mode": "IMMEDIATE", "pool": pool}):
        found = check_database(None)
    assert [message.id for message in found] == ([] if seconds is None else ["django_idempotency.W012"])
    assert all(f"wait {seconds} for" in message.msg for message in found)


@pytest.mark.parametrize(
    ("hosts", "timeout", "limit", "warned"),
    [
        ("", None, 2, False),
        ("a", None, 2, False),
        ("a,b", None, 60, True),  # a claim then gives the whole of its time to the first
        ("a,b", 0, 60, True),
        ("a,b", 2, 2, True),
        ("a,b", 2, 2.5, False),
        ("a,b", "2", 5, False),
        ("a,b", 1, 2, True),
        ("a,b,c", 2, 4, True),
        ("a,b,c", 2, 5, False),
    ],
)
def test_w013_a_host_that_may_take_all_of_a_claims_time(
    hosts: str, timeout: Any, limit: float, warned: bool, settings: Settings
) -> None:
    settings.DATABASE_ROUTERS = [Elsewhere()]
    settings.IDEMPOTENCY = {"CLAIM_LIMIT": limit}
    options = {"transaction_mode": "IMMEDIATE"} | ({} if timeout is None else {"connect_timeout": timeout})
    with another_alias("elsewhere", HOST=hosts, OPTIONS=options):
        found = check_database(None)
    assert [message.id for message in found] == (["django_idempotency.W013"] if warned else [])


def test_e035_a_database_that_commits_nothing_by_itself(settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [Elsewhere()]
    with another_alias("elsewhere", AUTOCOMMIT=False):
        message = only(check_database(None))
    assert message.id == "django_idempotency.E035"
    assert "'elsewhere'" in message.msg


def test_the_checks_are_registered_and_open_no_connection(settings: Settings) -> None:
    connection.close()
    settings.IDEMPOTENCY = {"LEESE": 5}
    ours = [message for message in run_checks() if (message.id or "").startswith("django_idempotency.")]
    found = [message.id for message in ours if not message.is_silenced()]
    assert found == ["django_idempotency.E002"]
    assert connection.connection is None
    with pytest.raises(SystemCheckError, match="Did you mean 'LEASE'"):
        call_command("check")


@pytest.mark.parametrize("on_delete", [models.CASCADE, models.PROTECT, models.RESTRICT, models.DO_NOTHING])
def test_e028_a_foreign_key_that_the_reaper_would_follow(on_delete: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_pointers(None) == []
    (relation,) = pointers()
    monkeypatch.setattr(relation, "on_delete", on_delete)
    message = only(check_pointers(None))
    assert (message.id, message.obj) == ("django_idempotency.E028", Payment)
    assert "payments.Payment.idempotency_key" in message.msg


def test_e028_lets_a_foreign_key_be_that_the_database_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    (relation,) = pointers()
    monkeypatch.setattr(relation, "on_delete", models.DO_NOTHING)
    monkeypatch.setattr(relation.field, "db_constraint", False)
    assert check_pointers(None) == []


def test_e028_lets_a_view_of_the_database_point(monkeypatch: pytest.MonkeyPatch) -> None:
    (relation,) = pointers()
    monkeypatch.setattr(relation, "on_delete", models.DO_NOTHING)
    monkeypatch.setattr(Payment._meta, "managed", False)
    assert check_pointers(None) == []
