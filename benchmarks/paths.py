"""Replay, reserve and complete, and atomic mode, against the bare driver doing the least that could be meant."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import django
import psycopg
from django.db import connection

from benchmarks.interleaved import Pair, interleave
from django_idempotency import FingerprintRule, Policy, Reply
from django_idempotency.core.calls import Call
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.flow.run import run_call

ROUNDS, CALLS = 60, 25

FLOOR = """\
The floor is one plain psycopg connection on the same table, with the same indexes, constraints and answer: no Django,
no time limit, no decision, no signal, nothing but these statements with ready-made values.
  replay   INSERT ... ON CONFLICT DO NOTHING, which loses; SELECT of the stored answer
  leased   INSERT; then BEGIN, UPDATE with the answer, COMMIT
  atomic   BEGIN; SELECT of the advisory lock and the row; INSERT of the finished row; COMMIT
Ours is running.run() with a handler that returns its answer at once. How the two connections are set up:
  plain      both bind parameters in the client and prepare nothing: what Django does when nothing is configured
  prepared   ours with OPTIONS = {"server_side_binding": True, "prepare_threshold": 1}; the floor prepares as well
  unlike     ours plain, the floor prepared; no target, because most of the difference is the driver's"""

ANSWER = Reply(201, (("Content-Type", "application/json"),), b'{"id": 17, "amount": 500, "currency": "EUR"}')
HEADERS = '[["Content-Type","application/json"]]'
FINGERPRINT = seal(
    RequestParts("POST", "/payments/", "", "application/json", b'{"amount": 500, "currency": "EUR"}'), FingerprintRule()
)
SCOPE = "4:user2:1715:payments.create"

_OWN = """(id, scope, key, status, fingerprint, attempt_token, lease_seconds, grace_seconds, retention_seconds,
    created_at, locked_until"""
CLAIM = f"""
    INSERT INTO idempotency_key {_OWN})
    VALUES (%s, %s, %s, 'in_progress', %s, %s, 300, 300, 86400, now(), now() + interval '300 s')
    ON CONFLICT DO NOTHING
"""
READ = """
    SELECT status, fingerprint, response_status, response_headers, response_body FROM idempotency_key
    WHERE scope = %s AND id = %s
"""
COMPLETE = """
    UPDATE idempotency_key
    SET status = 'completed', response_status = %s, response_headers = %s, response_body = %s, completed_at = now(),
        expires_at = now() + interval '1 day', locked_until = NULL
    WHERE scope = %s AND id = %s AND attempt_token = %s AND status = 'in_progress'
"""
LOOK = """
    SELECT gate.mine, status, fingerprint, response_status, response_headers, response_body
    FROM (SELECT pg_try_advisory_xact_lock(%s) AS mine) AS gate
    LEFT JOIN idempotency_key ON scope = %s AND id = %s
"""
FINISHED = f"""
    INSERT INTO idempotency_key {_OWN}, response_status, response_headers, response_body, completed_at, expires_at)
    VALUES (%s, %s, %s, 'completed', %s, %s, 300, 300, 86400, now(), NULL, %s, %s, %s, now(),
            now() + interval '1 day')
    ON CONFLICT DO NOTHING
"""


@dataclass
class Floor:
    """The driver alone."""

    raw: psycopg.Connection[Any]

    def claim(self, key: str) -> tuple[Any, Any]:
        record, token = uuid4(), uuid4()
        self.raw.execute(CLAIM, (record, SCOPE, key, FINGERPRINT, token))
        return record, token

    def replay(self) -> Callable[[], object]:
        key = uuid4().hex
        record, token = self.claim(key)
        self.raw.execute(COMPLETE, (201, HEADERS, ANSWER.body, SCOPE, record, token))

        def call() -> None:
            self.raw.execute(CLAIM, (record, SCOPE, key, FINGERPRINT, token))
            self.raw.execute(READ, (SCOPE, record)).fetchone()

        return call

    def leased(self) -> None:
        record, token = self.claim(uuid4().hex)
        with self.raw.transaction():
            self.raw.execute(COMPLETE, (201, HEADERS, ANSWER.body, SCOPE, record, token))

    def atomic(self) -> None:
        record = uuid4()
        gate = int.from_bytes(record.bytes[:8], "big", signed=True)
        with self.raw.transaction():
            self.raw.execute(LOOK, (gate, SCOPE, record)).fetchone()
            values = (record, SCOPE, uuid4().hex, FINGERPRINT, uuid4(), 201, HEADERS, ANSWER.body)
            self.raw.execute(FINISHED, values)


class Ours:
    """The flow as the boundary uses it, a new Call for each request."""

    def __init__(self) -> None:
        self.leased_policy, self.atomic_policy = Policy(), Policy(mode="atomic")  # type: ignore[arg-type] # a word is a Mode

    def request(self, policy: Policy, key: str) -> object:
        call = Call(SCOPE, key, FINGERPRINT, policy, principal="17", operation="payments.create")
        return run_call(call, lambda attempt: (ANSWER, ANSWER))

    def replay(self) -> Callable[[], object]:
        key = uuid4().hex
        self.request(self.leased_policy, key)
        return lambda: self.request(self.leased_policy, key)

    def leased(self) -> object:
        return self.request(self.leased_policy, uuid4().hex)

    def atomic(self) -> object:
        return self.request(self.atomic_policy, uuid4().hex)


TARGETS = {
    ("replay", "on"): 2.5,
    ("leased", "on"): 1.5,
    ("atomic", "on"): 1.6,
    ("replay", "off"): 2.5,
    ("leased", "off"): 2.5,
    ("atomic", "off"): 1.6,
}


@dataclass(frozen=True)
class Setting:
    """How both connections are set up."""

    name: str
    commit: str
    options: dict[str, Any]
    cursor: type[psycopg.Cursor[Any]]
    prepare_threshold: int | None

    def apply(self, raw: psycopg.Connection[Any]) -> None:
        connection.close()
        connection.settings_dict["OPTIONS"] = self.options
        raw.cursor_factory, raw.prepare_threshold = self.cursor, self.prepare_threshold
        raw.execute(f"SET synchronous_commit = {self.commit}")
        with connection.cursor() as cursor:
            cursor.execute(f"SET synchronous_commit = {self.commit}")


def settings() -> Iterator[Setting]:
    plain = dict(connection.settings_dict["OPTIONS"])
    prepared = {**plain, "server_side_binding": True, "prepare_threshold": 1}
    for commit in ("on", "off"):
        yield Setting("plain", commit, plain, psycopg.ClientCursor, None)
        yield Setting("prepared", commit, prepared, psycopg.Cursor, 1)
        yield Setting("unlike", commit, plain, psycopg.Cursor, 1)


def report() -> int:
    """Measure, print, and answer 0 when every target is met."""
    with scratch_database() as raw:
        print(environment(raw))
        print(f"\n{FLOOR}\n")
        print(f"{ROUNDS} rounds of {CALLS} calls, floor and ours in turn; the median, in microseconds a call.\n")
        print(f"{'connections':13}{'synchronous_commit':20}{'path':9}{'floor':>8}{'ours':>8}{'ratio':>8}{'target':>9}")
        met = [measure(raw, setting) for setting in list(settings())]
    return 0 if all(met) else 1


def measure(raw: psycopg.Connection[Any], setting: Setting) -> bool:
    setting.apply(raw)
    floor, ours = Floor(raw), Ours()
    pairs = {
        "replay": Pair(floor.replay(), ours.replay()),
        "leased": Pair(floor.leased, ours.leased),
        "atomic": Pair(floor.atomic, ours.atomic),
    }
    interleave(pairs, ROUNDS, CALLS)
    lines = [printed(setting, path, pair) for path, pair in pairs.items()]
    return all(lines)


def printed(setting: Setting, path: str, pair: Pair) -> bool:
    """One line, and whether its target is met."""
    target = TARGETS[path, setting.commit] if setting.name != "unlike" else None
    met = target is None or pair.ratio <= target
    verdict = "" if target is None else f"{f'<= {target}':>9}  {'met' if met else 'MISSED'}"
    print(
        f"{setting.name:13}{setting.commit:20}{path:9}{pair.microseconds('floor'):8.0f}{pair.microseconds('ours'):8.0f}"
        f"{pair.ratio:8.2f}{verdict}",
        flush=True,
    )
    return met


def environment(raw: psycopg.Connection[Any]) -> str:
    version = raw.info.server_version
    return (
        f"PostgreSQL {version // 10000}.{version % 10000}, Python {platform.python_version()}, "
        f"Django {django.__version__}, psycopg {psycopg.__version__}, {platform.machine()}"
    )


@contextmanager
def scratch_database() -> Iterator[psycopg.Connection[Any]]:
    """Migrated, empty, dropped afterwards; open as Django's default connection and as a plain one."""
    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        parameters = connection.get_connection_params()
        known = {
            each: parameters[each] for each in ("dbname", "user", "password", "host", "port") if parameters.get(each)
        }
        with psycopg.connect(**known, autocommit=True) as raw:
            yield raw
    finally:
        connection.close()
        connection.creation.destroy_test_db(name, verbosity=0)
