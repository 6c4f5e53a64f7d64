"""What each path makes the server write: transactions, log and dead rows.

Other sessions write to the same log and take from the same counter of transactions, but nothing is ever given back:
the least of many measurements is what the path itself costs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection, transaction

from django_idempotency.core.calls import Call
from django_idempotency.flow.run import run_call
from tests.kit.calls import a_call, claimed, handler
from tests.kit.databases import elsewhere

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

NEXT_TRANSACTION = "SELECT PG_SNAPSHOT_XMAX(PG_CURRENT_SNAPSHOT())::text::bigint"
LOG_POSITION = "SELECT PG_CURRENT_WAL_INSERT_LSN() - '0/0'::pg_lsn"
TRIES = 200


@pytest.fixture(autouse=True)
def _only_postgresql(request: pytest.FixtureRequest, vendor: str) -> None:
    wanted = "sqlite" if "sqlite" in request.node.name else "postgresql"
    if vendor != wanted:
        pytest.skip(f"looks into {wanted}")


def new(mode: str) -> Callable[[], object]:
    """A request under a key of its own, each time."""

    def go() -> object:
        call = a_call(mode=mode)
        return run_call(call, handler(call))

    return go


def again(call: Call) -> Callable[[], object]:
    """The same request once more; twice already, because a first reader may leave hints behind."""
    for _ in range(3):
        run_call(call, handler(call))
    return lambda: run_call(call, handler(call))


def bare() -> None:
    with transaction.atomic():
        handler(a_call())(None)


def value(question: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return int(cursor.fetchone()[0])


def least(question: str, work: Callable[[], object], expected: int) -> int:
    """The least that this work added to a number that only grows; stops early when it is as little as expected."""
    smallest = None
    for _ in range(TRIES):
        before = value(question)
        work()
        added = value(question) - before
        smallest = added if smallest is None else min(smallest, added)
        if smallest <= expected:
            break
    assert smallest is not None
    return smallest


@pytest.mark.parametrize(("work", "commits"), [(bare, 1), (new("leased"), 2), (new("atomic"), 1)])
def test_commits_that_write(work: Callable[[], object], commits: int) -> None:
    assert least(NEXT_TRANSACTION, work, commits) == commits


ANSWERS = ["leased replay", "atomic replay", "mismatch", "in flight"]


def answering(case: str) -> Callable[[], object]:
    call = a_call(mode="atomic" if case == "atomic replay" else "leased")
    if case == "in flight":
        claimed(call)
    work = again(call)
    return again(a_call(call.key, body=b"other")) if case == "mismatch" else work


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_commits_nothing(case: str) -> None:
    assert least(NEXT_TRANSACTION, answering(case), 0) == 0


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_writes_no_log(case: str) -> None:
    assert least(LOG_POSITION, answering(case), 0) == 0


def test_the_log_would_show_a_write() -> None:
    assert least(LOG_POSITION, new("atomic"), 1) > 100


@pytest.mark.parametrize(("mode", "most"), [("leased", 1290), ("atomic", 750)])
def test_the_log_of_a_new_key(mode: str, most: int) -> None:
    own = least(LOG_POSITION, bare, 1)
    assert least(LOG_POSITION, new(mode), own + most) - own <= most


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_leaves_no_dead_row(case: str) -> None:
    work = answering(case)
    before = row_statistics()
    for _ in range(20):
        work()
    assert row_statistics() == before


def test_the_statistics_would_show_a_write() -> None:
    before = row_statistics()
    new("leased")()
    inserted, updated, deleted, dead = (now - then for now, then in zip(row_statistics(), before, strict=True))
    assert (inserted, updated, deleted, dead) == (1, 1, 0, 1)


def row_statistics() -> tuple[int, ...]:
    """Rows of the table inserted, updated, deleted and dead, as this session and the server count them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT PG_STAT_FORCE_NEXT_FLUSH()")
        cursor.execute(
            "SELECT n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup FROM pg_stat_user_tables "
            "WHERE relname = 'idempotency_key'"
        )
        return tuple(cursor.fetchone())


def test_an_answer_does_not_change_the_sqlite_file() -> None:
    call = a_call()
    elsewhere(again(call))
    before = value("PRAGMA data_version")
    elsewhere(lambda: run_call(call, handler(call)))
    assert value("PRAGMA data_version") == before
    elsewhere(new("leased"))
    assert value("PRAGMA data_version") != before
