"""IDEMPOTENCY["PREPARED_STATEMENTS"] prepares the statements of most requests, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError, connection, connections
from django.test.utils import CaptureQueriesContext

from django_idempotency.core.decisions import Replay
from django_idempotency.flow.run import run_call
from django_idempotency.store import claims, records
from tests.kit.calls import a_call, handler
from tests.kit.databases import another_alias
from tests.kit.poolers import pooler as pooler
from tests.kit.poolers import reached_by

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

SERVER_BINDS = "server_binds"


@pytest.fixture
def prepared(settings: Any, vendor: str) -> None:
    if vendor != "postgresql":
        pytest.skip("the setting has a meaning on PostgreSQL only")
    settings.IDEMPOTENCY = {"PREPARED_STATEMENTS": True}


@pytest.fixture(params=["default", SERVER_BINDS])
def alias(request: pytest.FixtureRequest, prepared: None) -> Iterator[str]:
    """A new connection, as Django binds parameters by default, and as the project may let the server do it."""
    bind = request.param == SERVER_BINDS
    options = {**connection.settings_dict["OPTIONS"], "server_side_binding": bind}
    with another_alias(request.param if bind else "prepares", OPTIONS=options) as name:
        yield name


def prepared_on(alias: str) -> list[str]:
    """The prepared statements of this session."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements ORDER BY prepare_time")
        return [" ".join(statement.split()) for (statement,) in cursor.fetchall()]


def execute_all(alias: str) -> None:
    """Execute what new keys and replays execute, in both modes."""
    for mode in ("leased", "atomic"):
        call = a_call(mode=mode)
        run_call(call, handler(call, alias), alias)
        assert isinstance(run_call(call, handler(call, alias), alias), Replay)


@pytest.mark.direct
def test_each_statement_of_new_keys_and_replays_is_prepared_once(alias: str) -> None:
    for _ in range(3):
        execute_all(alias)
    verbs = sorted(statement.split()[0] for statement in prepared_on(alias))
    assert verbs == ["INSERT", "INSERT", "SELECT", "SELECT", "UPDATE"]


@pytest.mark.direct
def test_nothing_else_is_prepared(alias: str) -> None:
    execute_all(alias)
    assert connections[alias].connection.prepare_threshold is None
    with connections[alias].cursor() as cursor:
        for _ in range(10):
            cursor.execute("SELECT %s", [1])
    assert not [statement for statement in prepared_on(alias) if "idempotency_key" not in statement]


def test_the_threshold_of_the_project_stays_as_it_is(prepared: None) -> None:
    options = {**connection.settings_dict["OPTIONS"], "prepare_threshold": 7}
    with another_alias("threshold", OPTIONS=options) as alias:
        execute_all(alias)
        assert connections[alias].connection.prepare_threshold == 7


@pytest.mark.parametrize("configured", [{}, {"PREPARED_STATEMENTS": False}])
def test_nothing_is_prepared_unless_the_project_asks_for_it(settings: Any, vendor: str, configured: Any) -> None:
    if vendor != "postgresql":
        pytest.skip("nothing is ever prepared")
    settings.IDEMPOTENCY = configured
    with another_alias("plain") as alias:
        execute_all(alias)
        assert prepared_on(alias) == []


def test_the_setting_does_nothing_on_other_databases(settings: Any, vendor: str) -> None:
    if vendor == "postgresql":
        pytest.skip("it has a meaning there")
    settings.IDEMPOTENCY = {"PREPARED_STATEMENTS": True}
    execute_all("default")


@pytest.mark.direct
def test_execute_wrappers_see_prepared_statements(alias: str) -> None:
    seen: list[str] = []

    def watch(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with connections[alias].execute_wrapper(watch):
        execute_all(alias)
    verbs = [sql.split()[0] for sql in seen if "idempotency_key" in sql]
    assert verbs == ["INSERT", "UPDATE", "INSERT", "SELECT", "SELECT", "INSERT", "SELECT"]
    assert len(prepared_on(alias)) == 5


def test_while_queries_are_logged_they_have_their_text(alias: str) -> None:
    with CaptureQueriesContext(connections[alias]) as logged:
        execute_all(alias)
    verbs = [query["sql"].split()[0] for query in logged.captured_queries if "idempotency_key" in query["sql"]]
    assert verbs == ["INSERT", "UPDATE", "INSERT", "SELECT", "SELECT", "INSERT", "SELECT"]


def test_a_statement_that_fails_leaves_the_threshold_as_it_was(alias: str) -> None:
    call = a_call()
    execute_all(alias)
    with pytest.raises(DataError):
        claims.LOOK_ALONE.rows(alias, gate="no number", scope=call.scope, id=call.id)
    assert connections[alias].connection.prepare_threshold is None


@pytest.mark.direct
def test_a_closed_connection_is_opened_without_preparing(alias: str) -> None:
    assert connections[alias].connection is None
    assert records.find(a_call().ref(alias)) is None
    assert records.find(a_call().ref(alias)) is None
    assert len(prepared_on(alias)) == 1


@pytest.mark.processes
def test_behind_a_pooler_nothing_is_prepared(pooler: int, prepared: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), reached_by(pooler, DISABLE_SERVER_SIDE_CURSORS=True) as alias:
        for _ in range(3):
            execute_all(alias)
        assert prepared_on(alias) == []
    assert [record.message for record in caplog.records if "pooler" in record.message] == [
        "Nothing is prepared on 'pooled': a connection pooler stands before it."
    ]
