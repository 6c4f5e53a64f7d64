"""Every entry of the settings: its default, a value it takes, and values that it refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from pytest_django import Settings

from django_idempotency import IETF, STRIPE, FingerprintRule, Policy, ReplyRule
from django_idempotency.conf import Arguments, conf, names, policy
from django_idempotency.core.policy import AfterExpiry, Expiry, Mode, OnDisconnect

SECONDS = timedelta(seconds=1)
OTHER = replace(IETF, name="other", mismatch=409)
NO_PROFILE = 5
SECRET = b"sixteen bytes ok"


async def coroutine() -> str:
    return "acme"


class Called:
    async def __call__(self) -> str:
        return "acme"


@dataclass(frozen=True)
class Entry:
    default: Any
    given: Any
    taken: Any
    refused: tuple[Any, ...]
    argument: str | None  # the policy's argument of the same meaning


DURATIONS = ("5", None, True, -1, timedelta(seconds=-1), float("inf"), float("nan"), 1e30)
COUNTS = ("5", None, True, -1, 1.5)

ENTRIES = {
    "MODE": Entry(Mode.LEASED, "atomic", Mode.ATOMIC, ("Atomic", "", None, True), "mode"),
    "REQUIRED": Entry(True, False, False, ("no", 0, None), "required"),
    "LEASE": Entry(300 * SECONDS, 60, 60 * SECONDS, DURATIONS, "lease"),
    "GRACE": Entry(300 * SECONDS, timedelta(minutes=1), 60 * SECONDS, DURATIONS, "grace"),
    "ON_DISCONNECT": Entry(OnDisconnect.FINISH, "cancel", OnDisconnect.CANCEL, ("", None, True, 1), "on_disconnect"),
    "RETENTION": Entry(86400 * SECONDS, None, None, ("5", True, -1), "retention"),
    "EXPIRY": Entry(Expiry.HARD, "soft", Expiry.SOFT, ("SOFT", "", None, 1), "expiry"),
    "AUDIT": Entry(timedelta(days=30), 60, 60 * SECONDS, DURATIONS, "audit"),
    "AFTER_EXPIRY": Entry(AfterExpiry.RUN, AfterExpiry.GONE, AfterExpiry.GONE, ("410", 410), "after_expiry"),
    "ATTEMPTS": Entry(10, 3, 3, COUNTS, "attempts"),
    "ATTEMPTS_SPAN": Entry(600 * SECONDS, 0, 0 * SECONDS, DURATIONS, "attempts_span"),
    "CLAIM_LIMIT": Entry(2 * SECONDS, 0.5, timedelta(milliseconds=500), DURATIONS, "claim_limit"),
    "RETRY_HINT": Entry(2 * SECONDS, 1, SECONDS, DURATIONS, "retry_hint"),
    "MAX_BODY": Entry(1024 * 1024, 0, 0, COUNTS, None),
    "CANONICAL_LIMIT": Entry(65536, 10, 10, COUNTS, None),
    "SECRETS": Entry({}, {"a": SECRET}, {"a": SECRET}, (["a"], {"a": "text"}, {1: SECRET}, None), None),
    "RECONCILE_TRIES": Entry(10, 1, 1, (*COUNTS, 0), None),
    "RECONCILE_BACKOFF": Entry(30 * SECONDS, 1, SECONDS, DURATIONS, None),
    "RECONCILE_BACKOFF_MAX": Entry(timedelta(hours=6), 60, 60 * SECONDS, DURATIONS, None),
    "RECONCILE_LIMIT": Entry(30 * SECONDS, 1, SECONDS, (*DURATIONS, 0, timedelta(0), 1e-7), None),
    "UNATTENDED_LIMIT": Entry(timedelta(hours=24), None, None, ("5", True, -1), None),
    "COUNT_OUTCOMES": Entry(False, True, True, ("yes", 1, None), None),
    "COUNT_RETENTION": Entry(timedelta(days=30), None, None, ("5", True, -1), None),
    "EVENT_RETENTION": Entry(timedelta(days=90), 60, 60 * SECONDS, ("5", True, -1), None),
    "SCOPE": Entry(None, len, len, ("none.such", "Session", "tests.checks.test_conf.NO_PROFILE", 5), "scope"),
    "CACHE_ALIAS": Entry(None, "replays", "replays", ("", 5, True), None),
    "ADMIN_TENANT": Entry(None, len, len, ("none.such", "tests.checks.test_conf.NO_PROFILE", 5), None),
    "TENANT": Entry(None, len, len, ("none.such", "tests.checks.test_conf.NO_PROFILE", 5), "tenant"),
    "NAMESPACE": Entry(None, "acme", "acme", ("", "x" * 256, "two\nlines", 5, b"acme", coroutine, Called(), len), None),
    "PICK_UP": Entry(60 * SECONDS, 5, 5 * SECONDS, DURATIONS, None),
    "PREPARED_STATEMENTS": Entry(False, True, True, ("yes", 1, None), None),
    "MAX_DISCONNECTED": Entry(100, 0, 0, COUNTS, None),
    "SERVER_THREADS": Entry(None, 4, 4, (*COUNTS, 0), None),
    "ENQUEUE": Entry(None, "builtins.len", len, ("none.such", "tests.checks.test_conf.NO_PROFILE", 5), None),
    "DESCRIBE_ERROR": Entry(None, "builtins.repr", repr, ("none.such", 5, coroutine), None),
    "TRACE_ID": Entry(None, "builtins.len", len, ("none.such", 5, coroutine), None),
    "PROVIDER_URL": Entry(None, "https://pay/{key}", "https://pay/{key}", ("https://pay/", "js:{key}", 5), None),
    "RUNBOOK_URL": Entry(None, "/runbook", "/runbook", ("javascript:alert(1)", "//other", "", 5), None),
    "PROFILE": Entry(IETF, "stripe", STRIPE, ("none.such", "tests.checks.test_conf.NO_PROFILE", 5, None), "profile"),
}


def test_every_entry_is_in_the_table() -> None:
    assert set(names()) == set(ENTRIES)


def test_the_defaults(settings: Settings) -> None:
    defaults = {name: entry.default for name, entry in ENTRIES.items()}
    settings.IDEMPOTENCY = {}
    assert {name: getattr(conf, name) for name in ENTRIES} == defaults
    del settings.IDEMPOTENCY
    assert {name: getattr(conf, name) for name in ENTRIES} == defaults


def test_a_value_is_read_live(settings: Settings) -> None:
    settings.IDEMPOTENCY = {}
    for name, entry in ENTRIES.items():
        with override_settings(IDEMPOTENCY={name: entry.given}):
            found = getattr(conf, name)
            assert found == entry.taken, name
            assert type(found) is type(entry.taken), name
        assert getattr(conf, name) == entry.default, name


def test_a_wrong_value_names_its_entry(settings: Settings) -> None:
    accepted = []
    for name, entry in ENTRIES.items():
        for value in entry.refused:
            settings.IDEMPOTENCY = {name: value}
            try:
                accepted.append((name, value, getattr(conf, name)))
            except ValueError as error:
                assert re.match(rf"IDEMPOTENCY\['{name}'\]: \S", str(error)), error  # noqa: PT017 - some may not be refused
    assert accepted == []


def test_a_wrong_secret_is_not_shown(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"SECRETS": {"a": "hush hush"}}
    with pytest.raises(ValueError, match="SECRETS") as refused:
        _ = conf.SECRETS
    assert "hush" not in str(refused.value)


def test_a_word_that_is_not_known_is_answered_with_those_that_are(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"EXPIRY": "later"}
    with pytest.raises(ValueError, match="must be one of 'hard', 'soft'; it is 'later'"):
        _ = conf.EXPIRY
    settings.IDEMPOTENCY = {"MODE": "atomc"}
    with pytest.raises(ValueError, match="must be one of 'leased', 'atomic'; it is 'atomc'"):
        _ = conf.MODE


def test_a_profile_may_be_given_by_its_path(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"PROFILE": "tests.checks.test_conf.OTHER"}
    assert conf.PROFILE.name == "other"
    settings.IDEMPOTENCY = {"PROFILE": OTHER}
    assert conf.PROFILE is OTHER


def test_the_settings_defaults_are_the_policys(settings: Settings) -> None:
    settings.IDEMPOTENCY = {}
    assert policy() == Policy()


def test_a_setting_reaches_the_policy_and_an_argument_wins(settings: Settings) -> None:
    for name, entry in ENTRIES.items():
        if entry.argument is None:
            continue
        beside = {"EXPIRY": "soft"} if name == "AFTER_EXPIRY" else {}
        settings.IDEMPOTENCY = {**beside, name: entry.given}
        assert getattr(policy(), entry.argument) == entry.taken, name
        assert getattr(policy(**{entry.argument: entry.default}), entry.argument) == entry.default, name


def test_the_settings_of_a_part_reach_the_policy(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"MAX_BODY": 7, "CANONICAL_LIMIT": 8, "SECRETS": {"new": SECRET, "old": SECRET[::-1]}}
    made = policy()
    assert (made.reply.max_body, made.fingerprint.canonical_limit) == (7, 8)
    assert (made.fingerprint.secret_id, set(made.fingerprint.secrets)) == ("new", {"new", "old"})


def test_what_a_rule_leaves_out_comes_from_the_settings_too(settings: Settings) -> None:
    """An endpoint that counts one header more must not lose the secrets of its fingerprints."""
    settings.IDEMPOTENCY = {"MAX_BODY": 7, "CANONICAL_LIMIT": 8, "SECRETS": {"a": SECRET}}
    made = policy(reply=ReplyRule(extra_headers=["X-A"]), fingerprint=FingerprintRule(headers=("X-B",)))
    assert (made.reply.max_body, made.fingerprint.canonical_limit) == (7, 8)
    assert (made.fingerprint.secret_id, made.fingerprint.headers) == ("a", ("x-b",))
    assert "x-a" in made.reply.extra_headers

    own = FingerprintRule(canonical_limit=9, secrets={"own": SECRET}, secret_id="own")
    made = policy(reply=ReplyRule(max_body=10), fingerprint=own)
    assert (made.reply.max_body, made.fingerprint) == (10, own)


def test_a_rule_that_names_the_default_wins_over_the_setting(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"MAX_BODY": 7, "CANONICAL_LIMIT": 8}
    made = policy(reply=ReplyRule(max_body=1024 * 1024), fingerprint=FingerprintRule(canonical_limit=65536))
    assert (made.reply.max_body, made.fingerprint.canonical_limit) == (1024 * 1024, 65536)


def test_arguments_follow_the_settings(settings: Settings) -> None:
    settings.IDEMPOTENCY = {}
    arguments = Arguments({"mode": "atomic"})
    before = arguments.policy()
    assert (before.mode, before.attempts) == (Mode.ATOMIC, 10)
    assert arguments.policy() is before
    with override_settings(IDEMPOTENCY={"ATTEMPTS": 3}):
        assert (arguments.policy().mode, arguments.policy().attempts) == (Mode.ATOMIC, 3)
    assert arguments.policy().attempts == 10


def test_a_wrong_name_is_an_error_that_knows_the_right_one() -> None:
    with pytest.raises(TypeError, match="no argument 'mod'; did you mean 'mode'"):
        Arguments({"mod": "atomic"})
    with pytest.raises(TypeError, match="no argument 'zzz'"):
        Arguments({"zzz": 1})


def test_a_wrong_argument_is_an_error_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="mode"):
        Arguments({"mode": "both"})
    with pytest.raises(TypeError, match="leese"):
        Arguments({"leese": SECONDS})
