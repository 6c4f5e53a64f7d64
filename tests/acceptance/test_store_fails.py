"""The database is down, hangs, or goes away at the worst moment: nothing runs unprotected, no success is invented."""

from __future__ import annotations

import fcntl
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testproject.http import Answer
from tests.acceptance.conftest import Wired
from tests.acceptance.subjects import (
    ASYNC,
    ATOMIC,
    LATE,
    PAYMENTS,
    WHOLE,
    Subject,
    is_replay,
    let_the_lease_run_out,
    new,
    quoted,
    refused_as,
)
from tests.kit.cable import Cable
from tests.kit.processes import Site
from tests.kit.proxy import Proxy, Theft
from tests.kit.threads import at_once, wait_until

pytestmark = pytest.mark.vendor

CLAIM_LIMIT_SECONDS = 2
CONNECTING_SECONDS = 3  # a driver's own floor for a new connection, and the answer's way back


def echo(site: Site, key: str) -> Answer:
    """Anonymous, so that nothing before the claim asks the database."""
    return site.anyone.post_bytes("/conformance/echo", b"one", key=quoted(key))


def unavailable(answer: Answer) -> bool:
    return refused_as(answer, 503, "store_unavailable") and int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("fail", [Cable.cut, Cable.silence], ids=["down", "hanging"])
def test_while_the_store_is_out_nothing_runs(wired: Wired, fail: Callable[[Cable], None]) -> None:
    keys = [new() for _ in range(8)]
    fail(wired.cable)
    began = time.monotonic()
    answers = at_once([partial(echo, wired.site, key) for key in keys])
    took = time.monotonic() - began

    assert all(unavailable(answer) for answer in answers)
    assert took < CLAIM_LIMIT_SECONDS + CONNECTING_SECONDS
    assert wired.site.executions() == 0
    wired.cable.repair()
    assert [echo(wired.site, key).status for key in keys] == [201] * len(keys)
    assert wired.site.executions() == len(keys)


def test_a_database_that_another_process_is_writing_to_is_unavailable(site: Site, vendor: str) -> None:
    if vendor != "sqlite":
        pytest.skip("only SQLite has one lock for all writers; the other databases are cut off instead")
    key = new()
    with writing(site):
        assert unavailable(echo(site, key))
    assert site.executions() == 0
    assert echo(site, key).status == 201


@contextmanager
def writing(site: Site) -> Iterator[None]:
    """A transaction that holds SQLite's only write lock."""
    with closing(sqlite3.connect(urlsplit(site.database_url).path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_key_is_checked_before_the_store_is_asked(wired: Wired) -> None:
    wired.cable.cut()

    assert refused_as(wired.site.anyone.post_bytes("/conformance/echo", b"one", key='"a", "b"'), 400, "key_invalid")
    assert refused_as(wired.site.anyone.post_bytes("/conformance/echo", b"one", key=None), 400, "key_missing")
    assert wired.site.executions() == 0


def test_a_store_that_dies_under_a_running_view_leaves_doubt(wired: Wired) -> None:
    key = new()
    again = partial(wired.site.anyone.post_bytes, "/conformance/echo", b"one", key=quoted(key))
    with ThreadPoolExecutor(1) as pool, counter_held(wired.site):
        first = pool.submit(again)
        wait_until(lambda: somebody_is_to_be_counted(wired.site))
        wired.cable.cut()

    assert refused_as(first.result(), 409, "outcome_unknown")
    assert unavailable(again())
    wired.cable.repair()
    assert refused_as(again(), 409, "key_in_progress")
    let_the_lease_run_out(wired.site, key)
    assert refused_as(again(), 409, "outcome_unknown")
    assert wired.site.executions() == 1


@pytest.mark.soak
def test_a_database_that_is_busy_when_a_view_ends_leaves_doubt(site: Site, vendor: str) -> None:
    if vendor != "sqlite":
        pytest.skip("only SQLite has one lock for all writers; the other databases are cut off instead")
    key = new()
    with ThreadPoolExecutor(1) as pool, ExitStack() as busy:
        with counter_held(site):
            first = pool.submit(echo, site, key)
            wait_until(lambda: somebody_is_to_be_counted(site))
            busy.enter_context(writing(site))
        assert refused_as(first.result(), 409, "outcome_unknown")

    let_the_lease_run_out(site, key)
    assert refused_as(echo(site, key), 409, "outcome_unknown")
    assert site.executions() == 1


@contextmanager
def counter_held(site: Site) -> Iterator[None]:
    """Whoever runs waits to be counted. Leaving the block lets them go on."""
    with counter_of(site).open("a") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        yield


def counter_of(site: Site) -> Path:
    return site.service.log.parent / "conformance.counter"


def somebody_is_to_be_counted(site: Site) -> bool:
    """True if a view waits: a key is in progress before its view runs."""
    number = f":{counter_of(site).stat().st_ino} "
    return any("-> FLOCK" in line and number in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_store_that_dies_after_the_charge_never_leads_to_another(wired: Wired) -> None:
    account, key = new(), new()
    site = wired.site
    again = partial(site.alice.post, PAYMENTS.path, PAYMENTS.order(account), key=quoted(key))
    with PAYMENTS.running(site, account, key) as first:
        wired.cable.cut()

    assert refused_as(first.result(), 409, "outcome_unknown")  # the view itself could not write
    wired.cable.repair()
    assert refused_as(again(), 409, "key_in_progress")
    let_the_lease_run_out(site, key)
    assert refused_as(again(), 409, "outcome_unknown")
    assert PAYMENTS.effects(site, account) == 1


@pytest.fixture
def thief(wired: Wired) -> Proxy:
    if wired.thief is None:
        pytest.skip("the thief speaks PostgreSQL's protocol")
    return wired.thief


@pytest.mark.parametrize("subject", [PAYMENTS, ASYNC, WHOLE, LATE], ids=str)
def test_a_commit_that_fails_is_no_success(wired: Wired, thief: Proxy, subject: Subject) -> None:
    account, key = new(), new()
    again = partial(wired.site.alice.post, subject.path, subject.order(account), key=quoted(key))
    thief.steal(b"COMMIT", Theft.MESSAGE)

    first = again()

    assert thief.stolen.is_set()
    assert refused_as(first, 409, "outcome_unknown")
    assert refused_as(again(), 409, "outcome_unknown")
    assert booked(wired.site, subject, account) == 0
    assert subject.effects(wired.site, account) == (1 if subject.charges else 0)


@pytest.mark.parametrize("subject", [PAYMENTS, ASYNC, WHOLE, LATE, ATOMIC], ids=str)
def test_a_commit_that_lands_unheard_is_a_success(wired: Wired, thief: Proxy, subject: Subject) -> None:
    account, key = new(), new()
    again = partial(wired.site.alice.post, subject.path, subject.order(account), key=quoted(key))
    thief.steal(b"COMMIT", Theft.ANSWER)

    first = again()

    assert first.status == 201
    assert is_replay(again(), first)
    assert booked(wired.site, subject, account) == subject.effects(wired.site, account) == 1


def test_an_atomic_commit_that_fails_is_in_doubt_and_may_be_sent_again(wired: Wired, thief: Proxy) -> None:
    account, key = new(), new()
    again = partial(wired.site.alice.post, ATOMIC.path, ATOMIC.order(account), key=quoted(key))
    thief.steal(b"COMMIT", Theft.MESSAGE)

    first = again()

    assert refused_as(first, 409, "outcome_unknown")
    assert first.json()["safe_new_key"] is False, "the COMMIT may still be on its way"
    assert ATOMIC.effects(wired.site, account) == 0
    assert again().status == 201
    assert ATOMIC.effects(wired.site, account) == 1


def booked(site: Site, subject: Subject, account: str) -> int:
    """What the service itself has written down."""
    if subject.charges:
        return len(site.rows("SELECT id FROM payments_payment WHERE customer = %s", account))
    return subject.effects(site, account)
