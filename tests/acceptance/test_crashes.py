"""Workers that die, leases that run out under a running view, clients that hang up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from testproject.http import NoAnswer
from testproject.servers import kill_workers
from tests.acceptance.subjects import (
    ASYNC,
    ATOMIC,
    LATE,
    LEASED,
    PAYMENTS,
    WHOLE,
    Subject,
    connected,
    is_replay,
    let_the_lease_run_out,
    new,
    quoted,
    refused_as,
    status_of,
)
from tests.kit.processes import Site
from tests.kit.threads import wait_until

pytestmark = pytest.mark.vendor

SLEEPS: Any = {"simulate": {"sleep": 600}}


def nobody_knows(site: Site, path: str, order: dict[str, Any], key: str) -> bool:
    """409 while the lease lives, and another 409 ever after."""
    again = partial(site.alice.post, path, order, key=quoted(key))
    early = again()
    assert refused_as(early, 409, "key_in_progress")
    assert early.headers["Retry-After"] in ("1", "2")
    let_the_lease_run_out(site, key)
    late = [again() for _ in range(2)]
    assert all(refused_as(answer, 409, "outcome_unknown") for answer in late)
    return status_of(site, key) == "unknown"


@pytest.mark.parametrize("subject", [PAYMENTS, ASYNC], ids=str)
def test_killed_after_the_charge_it_never_charges_again(site: Site, subject: Subject) -> None:
    account, key = new(), new()
    order = subject.order(account, **SLEEPS)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.alice.post, subject.path, order, key=quoted(key))
        wait_until(lambda: subject.effects(site, account))
        kill_workers(site.service)
        assert isinstance(first.exception(), NoAnswer)

    assert nobody_knows(site, subject.path, order, key)
    assert subject.effects(site, account) == 1


@pytest.mark.parametrize("subject", [WHOLE, LATE], ids=str)
def test_killed_before_it_wrote_it_is_in_doubt_all_the_same(site: Site, subject: Subject) -> None:
    account, key = new(), new()
    with subject.running(site, account, key) as first:
        kill_workers(site.service)
        assert isinstance(first.exception(), NoAnswer)

    assert nobody_knows(site, subject.path, subject.order(account), key)
    assert subject.effects(site, account) == 0


def test_killed_in_atomic_mode_it_leaves_nothing_and_a_retry_runs_afresh(site: Site) -> None:
    account, key = new(), new()
    again = partial(site.alice.post, ATOMIC.path, ATOMIC.order(account), key=quoted(key))
    with ATOMIC.running(site, account, key) as first:
        kill_workers(site.service)
        assert isinstance(first.exception(), NoAnswer)

    wait_until(lambda: again().status == 201)  # the database notices the death a moment later
    assert again().headers["Idempotency-Replayed"] == "true"
    assert ATOMIC.effects(site, account) == 1


@pytest.mark.parametrize("subject", LEASED, ids=str)
def test_a_view_that_outlives_its_lease_still_gives_the_one_answer(site: Site, subject: Subject, vendor: str) -> None:
    if vendor == "sqlite" and not subject.late:
        pytest.skip("SQLite has one writer: nothing can change a lease while a whole transaction is open")
    account, key = new(), new()
    again = partial(site.alice.post, subject.path, subject.order(account), key=quoted(key))
    with subject.running(site, account, key) as first:
        let_the_lease_run_out(site, key)
        assert refused_as(again(), 409, "outcome_unknown")

    assert first.result().status == 201
    assert is_replay(again(), first.result())
    assert status_of(site, key) == "completed"
    assert subject.effects(site, account) == 1


def test_a_client_that_hangs_up_during_the_charge_is_not_charged_twice(asgi: Site) -> None:
    account, key = new(), new()
    with ASYNC.held(asgi):
        with connected(asgi, ASYNC.path, ASYNC.order(account), key):
            wait_until(lambda: ASYNC.began(asgi, account))
        early = asgi.alice.post(ASYNC.path, ASYNC.order(account), key=quoted(key))
        assert refused_as(early, 409, "key_in_progress")
    wait_until(lambda: status_of(asgi, key) == "completed")
    again = asgi.alice.post(ASYNC.path, ASYNC.order(account), key=quoted(key))
    assert (again.status, again.headers["Idempotency-Replayed"]) == (201, "true")
    assert ASYNC.effects(asgi, account) == 1


def test_a_client_that_hangs_up_on_a_sync_view_finds_its_answer_later(asgi: Site) -> None:
    account, key = new(), new()
    with PAYMENTS.held(asgi), connected(asgi, PAYMENTS.path, PAYMENTS.order(account), key):
        wait_until(lambda: status_of(asgi, key) == "in_progress")

    wait_until(lambda: status_of(asgi, key) == "completed")
    again = asgi.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=quoted(key))
    assert (again.status, again.headers["Idempotency-Replayed"]) == (201, "true")
    assert PAYMENTS.effects(asgi, account) == 1
