"""Clients that hang up on an async view, under every ASGI server: it finishes, unless its lease or its server ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from testproject.servers import Kind
from tests.acceptance.conftest import ready
from tests.acceptance.subjects import ASYNC, connected, new, quoted, refused_as, status_of
from tests.kit.processes import Site, running_site
from tests.kit.threads import wait_until

Served = Callable[..., AbstractContextManager[Site]]

# How to make a server wait for a second only when it ends. Daphne never waits.
IMPATIENT: dict[Kind, tuple[str, ...]] = {
    "uvicorn": ("--timeout-graceful-shutdown", "1"),
    "hypercorn": ("--graceful-timeout", "1"),
    "daphne": (),
}
PATIENT: dict[Kind, tuple[str, ...]] = {"uvicorn": (), "hypercorn": ("--graceful-timeout", "60")}
ENDS_WITHIN_SECONDS = 30
FOR_A_SECOND: Any = {"simulate": {"sleep": 1}}
FOR_EVER: Any = {"simulate": {"sleep": 600}}
CANCELLING = {"DJANGO_SETTINGS_MODULE": "tests.acceptance.served.settings", "ON_DISCONNECT": "cancel"}
others = [pytest.param(kind, marks=pytest.mark.soak) for kind in IMPATIENT if kind != "uvicorn"]
every_server = pytest.mark.parametrize("kind", ["uvicorn", *others])


@pytest.fixture
def served(tmp_path: Path, http_database: str, django_db_blocker: DjangoDbBlocker) -> Served:
    @contextmanager
    def run(kind: Kind, *options: str, **environment: str) -> Iterator[Site]:
        if find_spec(kind) is None:
            pytest.skip(f"{kind} is not installed")
        with running_site(tmp_path, http_database, kind=kind, environment=environment, options=options) as started:
            with ready(started, django_db_blocker) as site:
                yield site
            log = started.service.log.read_text()
        assert "Task was destroyed" not in log
        assert not re.search(r"was never retrieved\n.*coro=<(?!ASGIHandler)", log)  # Django leaves some of its own
        assert "was never awaited" not in log

    return run


def hang_up_during_the_charge(site: Site, key: str, account: str, simulation: Any) -> None:
    """The server has noticed it when the charge is made, and the view still runs."""
    with ASYNC.held(site), connected(site, ASYNC.path, ASYNC.order(account, **simulation), key):
        wait_until(lambda: ASYNC.began(site, account))
    wait_until(lambda: ASYNC.effects(site, account))


def stop(site: Site) -> None:
    site.service.process.terminate()
    site.service.process.wait(ENDS_WITHIN_SECONDS)


@every_server
def test_the_view_finishes_and_the_retry_gets_its_answer(served: Served, kind: Kind) -> None:
    account, key = new(), new()
    with served(kind) as site:
        hang_up_during_the_charge(site, key, account, FOR_A_SECOND)
        wait_until(lambda: status_of(site, key) != "in_progress")
        again = site.alice.post(ASYNC.path, ASYNC.order(account, **FOR_A_SECOND), key=quoted(key))
        assert (again.status, again.headers["Idempotency-Replayed"]) == (201, "true")
        assert ASYNC.effects(site, account) == 1


@every_server
@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(CANCELLING, id="policy"),
        pytest.param({"IDEMPOTENCY_LEASE_SECONDS": "2"}, id="lease over", marks=pytest.mark.soak),
    ],
)
def test_when_it_is_cancelled_the_outcome_is_unknown(served: Served, kind: Kind, environment: dict[str, str]) -> None:
    account, key = new(), new()
    with served(kind, **environment) as site:
        hang_up_during_the_charge(site, key, account, FOR_EVER)
        wait_until(lambda: status_of(site, key) == "unknown")
        again = site.alice.post(ASYNC.path, ASYNC.order(account, **FOR_EVER), key=quoted(key))
        assert refused_as(again, 409, "outcome_unknown")
        assert ASYNC.effects(site, account) == 1


@pytest.mark.parametrize("kind", ["uvicorn", pytest.param("hypercorn", marks=pytest.mark.soak)])
def test_a_server_that_ends_lets_the_view_finish(served: Served, kind: Kind) -> None:
    account, key = new(), new()
    with served(kind, *PATIENT[kind]) as site:
        hang_up_during_the_charge(site, key, account, FOR_A_SECOND)
        stop(site)
        assert status_of(site, key) == "completed"
        assert ASYNC.effects(site, account) == 1


@every_server
def test_a_server_that_does_not_wait_leaves_an_unknown_outcome(served: Served, kind: Kind) -> None:
    """Uvicorn ends so soon that nothing can be recorded; the sweeper does it when the lease is over."""
    account, key = new(), new()
    with served(kind, *IMPATIENT[kind], IDEMPOTENCY_LEASE_SECONDS="10") as site:
        hang_up_during_the_charge(site, key, account, FOR_EVER)
        stop(site)
        assert status_of(site, key) == ("in_progress" if kind == "uvicorn" else "unknown")
        assert ASYNC.effects(site, account) == 1


@every_server
def test_a_client_that_is_still_there_keeps_no_server_running(served: Served, kind: Kind) -> None:
    """At most until the lease is over. What is left in progress becomes unknown then."""
    if kind == "hypercorn" and sys.version_info >= (3, 12):
        pytest.skip("there hypercorn waits for every open connection, whatever the view does")
    account, key = new(), new()
    with served(kind, *IMPATIENT[kind], IDEMPOTENCY_LEASE_SECONDS="10") as site:
        with connected(site, ASYNC.path, ASYNC.order(account, **FOR_EVER), key):
            wait_until(lambda: ASYNC.effects(site, account))
            stop(site)
        assert status_of(site, key) in ("unknown", "in_progress")
        assert ASYNC.effects(site, account) == 1
