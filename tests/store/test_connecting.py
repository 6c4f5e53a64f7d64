"""The limit covers getting a connection, whatever gives it: a pool, a pooler before the server, or neither."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import active_count
from time import monotonic
from typing import Any

import pytest
from django.db import connection, connections, transaction

from django_idempotency import Status
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import limits
from tests.kit.calls import Booking, a_call, bookings
from tests.kit.databases import another_alias
from tests.kit.records import status_of
from tests.kit.threads import Actor, actors, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

ALIAS = "crowded"
LIMIT = timedelta(seconds=1)
LATE = 0.9  # how much a busy machine may add


@pytest.fixture(autouse=True)
def _postgresql(vendor: str) -> None:
    if vendor != "postgresql":
        pytest.skip("pools and poolers are PostgreSQL's")


@pytest.fixture
def holder() -> Iterator[Actor]:
    with actors(1) as crowd:
        yield crowd[0]


@pytest.fixture
def pooled() -> Iterator[str]:
    """One connection for the whole process."""
    pytest.importorskip("psycopg_pool", reason="psycopg_pool is not installed: the pool was NOT tried")
    options = {**connection.settings_dict["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}
    with another_alias(ALIAS, OPTIONS=options, CONN_MAX_AGE=0) as alias:
        yield alias
        connections[ALIAS].close()
        connections[ALIAS].close_pool()  # type: ignore[attr-defined]


@pytest.fixture
def bouncer(tmp_path: Path) -> Iterator[str]:
    """A real pgbouncer with one connection to the server. It answers logins itself."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed: the pooler was NOT tried")
    server = connection.settings_dict
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "users.txt").write_text(f'"{server["USER"]}" "{server["PASSWORD"]}"\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={server['HOST'] or '127.0.0.1'} port={server['PORT'] or 5432}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {tmp_path / 'users.txt'}\n"
        "pool_mode = transaction\ndefault_pool_size = 1\nignore_startup_parameters = extra_float_digits,options\n"
    )
    tmp_path.chmod(0o755)
    as_user = ("-u", "nobody") if os.geteuid() == 0 else ()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([program, *as_user, str(tmp_path / "pgbouncer.ini")], stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(port) or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "log").read_text()
        with another_alias(ALIAS, HOST="127.0.0.1", PORT=str(port)) as alias:
            yield alias
    finally:
        process.terminate()
        process.wait(30)


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextmanager
def taken(holder: Actor) -> Iterator[None]:
    """Another thread has the only connection to the server, in an open transaction."""
    wrapper, stack = connections[ALIAS].copy(), ExitStack()
    wrapper.inc_thread_sharing()

    def take() -> None:
        connections[ALIAS] = wrapper
        stack.enter_context(transaction.atomic(using=ALIAS))
        IdempotencyKey.objects.using(ALIAS).count()

    def give_back() -> None:
        stack.close()
        wrapper.close()

    holder.do(take)
    try:
        yield
    finally:
        holder.do(give_back)


@pytest.mark.parametrize("mode", ["leased", "atomic"])
@pytest.mark.parametrize("way", ["pooled", "bouncer"])
def test_a_claim_waits_no_longer_than_its_limit(
    way: str, mode: str, request: pytest.FixtureRequest, holder: Actor
) -> None:
    alias = request.getfixturevalue(way)
    call = a_call(mode=mode, claim_limit=LIMIT)
    work = Booking(call, using=alias)
    with taken(holder):
        connections[alias].close()
        threads, began = active_count(), monotonic()
        with pytest.raises(StoreUnavailable):
            run_call(call, work, alias)
        assert monotonic() - began < LIMIT.total_seconds() + LATE
        assert work.runs == 0
        wait_until(lambda: active_count() <= threads + 1)
    assert run_call(call, work, alias) == "booked"
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


def test_a_connection_that_comes_too_late_goes_back_to_the_pool(pooled: str, holder: Actor) -> None:
    with taken(holder):
        connections[pooled].close()
        with pytest.raises(StoreUnavailable), limits.limited(pooled, 0.3):
            raise AssertionError("nothing runs")
    for _ in range(3):
        with limits.limited(pooled, 5):
            assert IdempotencyKey.objects.using(pooled).count() == 0
        connections[pooled].close()


def test_a_connection_that_was_cut_does_not_go_back_to_the_pool(pooled: str) -> None:
    with pytest.raises(StoreUnavailable), limits.limited(pooled, 0.3), connections[pooled].cursor() as cursor:
        cursor.execute("SELECT pg_sleep(5)")
    connections[pooled].close()
    with limits.limited(pooled, 5):
        assert IdempotencyKey.objects.using(pooled).count() == 0


def test_what_the_driver_says_is_what_is_raised(vendor: str) -> None:
    with another_alias(ALIAS, HOST="127.0.0.1", PORT="1") as alias, pytest.raises(StoreUnavailable) as caught:
        limits.connect(alias, 2.0)
    assert "refused" in str(caught.value.__cause__)


def test_receivers_of_a_new_connection_get_djangos_wrapper(vendor: str) -> None:
    from django.db.backends.signals import connection_created

    seen: list[Any] = []

    def receive(connection: Any, **_: Any) -> None:
        seen.append(connection)

    connection_created.connect(receive)
    try:
        with another_alias(ALIAS) as alias:
            limits.connect(alias, 5.0)
            assert seen == [connections[alias]]
            assert "get_new_connection" not in vars(connections[alias])
    finally:
        connection_created.disconnect(receive)
