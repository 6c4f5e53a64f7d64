"""`idempotency_partition`: the records move while requests use them, and nothing is lost or claimed twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import StringIO
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections, transaction
from django.test import Client

from django_idempotency import Reply
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.findings import Code
from django_idempotency.monitoring.health import examine
from django_idempotency.store import attempts, claims, deletion, jobs, layout, partitions
from django_idempotency.store.records import find
from testproject.payments.models import Payment
from testproject.servers import ROOT
from tests.kit.calls import a_call
from tests.kit.databases import another_alias, elsewhere, kill, running
from tests.kit.records import LONG_AGO, completed
from tests.kit.threads import Actor, actors, held_open, wait_until
from tests.management.conftest import SCHEMA, execute
from tests.management.terminals import Terminal

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("migrated"),
    pytest.mark.slow,
    pytest.mark.vendor,
]

COLUMNS = [field.attname for field in IdempotencyKey._meta.concrete_fields]
RECORDS = 3000


def partition(*arguments: str, noinput: bool = True) -> str:
    output = StringIO()
    call_command("idempotency_partition", *arguments, *(["--noinput"] if noinput else []), stdout=output)
    return output.getvalue().strip()


def fetch(query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def reply(text: str) -> Reply:
    return Reply(201, (("Content-Type", "text/plain"),), text.encode())


def fill(number: int = RECORDS) -> None:
    """Finished records, some of which have bodies that PostgreSQL stores beside the row."""
    IdempotencyKey.objects.bulk_create(
        IdempotencyKey(
            id=uuid4(), scope=f"scope {number % 50}", key=str(number), status="completed", fingerprint="v2:-",
            attempt_token=uuid4(), lease_seconds=1, grace_seconds=1, retention_seconds=86_400, created_at=LONG_AGO,
            completed_at=LONG_AGO, expires_at="9999-12-31 00:00Z", response_status=201,
            response_body=os.urandom(5000 if number % 50 == 0 else 600),
        )
        for number in range(number)
    )  # fmt: skip


def rows() -> dict[UUID, tuple[Any, ...]]:
    return {
        row[0]: tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
        for row in IdempotencyKey.objects.values_list(*COLUMNS)
    }


def number_of_partitions() -> int:
    return layout.read_layout("default").partitions


def leftovers() -> list[Any]:
    """Whatever an unfinished run leaves."""
    names = (layout.NEW, layout.MIRROR)
    return [
        *fetch(f"SELECT relname FROM pg_class WHERE relnamespace = '{SCHEMA}'::regnamespace AND relname LIKE '%new%'"),
        *fetch(f"SELECT proname FROM pg_proc WHERE proname IN {names}"),
        *fetch(f"SELECT tgname FROM pg_trigger WHERE tgname IN {names}"),
    ]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives up soon."""
    monkeypatch.setattr(layout, "LOCK_TRIES", 2)
    monkeypatch.setattr(layout, "PAUSE", 0.01)
    monkeypatch.setattr(partitions, "ROW_WAIT", 0.05)
    monkeypatch.setattr(partitions, "TABLE_WAIT", 0.05)


def shape() -> dict[str, Any]:
    """All that the catalog says of the table but its partitions and its primary key."""
    table = "'idempotency_key'::regclass"
    first = f"(SELECT COALESCE(MIN(inhrelid), {table}) FROM pg_inherits WHERE inhparent = {table})"
    return {
        "columns": fetch(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull, attcompression, attstorage, attcollation,"
            " pg_get_expr(adbin, adrelid), col_description(attrelid, attnum), attacl::text"
            f" FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
            f" WHERE attrelid = {table} AND attnum > 0 ORDER BY attnum"
        ),
        "constraints": fetch(
            f"SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            f" WHERE conrelid = {table} AND contype IN ('c', 'u') ORDER BY conname"
        ),
        "indexes": fetch(
            "SELECT x.relname, indisunique, pg_get_expr(indpred, indrelid), regexp_replace("
            "pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') FROM pg_index JOIN pg_class x ON x.oid = indexrelid"
            f" WHERE indrelid = {table} AND NOT indisprimary ORDER BY x.relname"
        ),
        "primary key's name": fetch(
            f"SELECT x.relname FROM pg_index JOIN pg_class x ON x.oid = indexrelid WHERE indrelid = {table}"
            " AND indisprimary"
        ),
        "grants": fetch(
            "SELECT a.grantee::regrole::text, privilege_type, is_grantable FROM pg_class, aclexplode(relacl) a"
            f" WHERE oid = {table} ORDER BY 1, 2"
        ),
        "owner": fetch(f"SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid IN ({table}, {first})"),
        "comment": fetch(f"SELECT obj_description({table})"),
        "storage": fetch(
            f"SELECT c.reloptions, t.reloptions FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid"
            f" WHERE c.oid = {first}"
        ),
    }


@pytest.fixture
def dressed(migrated: None) -> Iterator[None]:
    """The table has what a project may have given it."""
    execute(
        "DROP ROLE IF EXISTS laid_out_owner", "DROP ROLE IF EXISTS laid_out_reader",
        "CREATE ROLE laid_out_owner", "CREATE ROLE laid_out_reader",
        f"GRANT ALL ON SCHEMA {SCHEMA} TO laid_out_owner",
        "ALTER TABLE idempotency_key OWNER TO laid_out_owner",
        "GRANT SELECT ON idempotency_key TO laid_out_reader WITH GRANT OPTION",
        "GRANT UPDATE (status) ON idempotency_key TO laid_out_reader",
        "GRANT SELECT ON idempotency_key TO PUBLIC",
        "COMMENT ON TABLE idempotency_key IS 'Ada''s records'",
        "COMMENT ON COLUMN idempotency_key.key IS 'what the client sent'",
        "ALTER TABLE idempotency_key SET (fillfactor = 80, toast.autovacuum_enabled = false)",
        "ALTER TABLE idempotency_key ALTER arguments SET COMPRESSION pglz",
        "ALTER TABLE idempotency_key ADD COLUMN region text DEFAULT 'eu'",
        "CREATE INDEX idempotency_key_region ON idempotency_key (region) WHERE region <> 'eu'",
    )  # fmt: skip
    yield
    execute(
        f"DROP SCHEMA {SCHEMA} CASCADE", "DROP ROLE laid_out_owner, laid_out_reader",
    )  # fmt: skip


@pytest.mark.usefixtures("dressed")
def test_the_table_keeps_everything_and_comes_back() -> None:
    before = shape()
    assert ("arguments", "p") in [(column[0], column[3]) for column in before["columns"]]  # its compression
    fill(100)
    held = rows()

    said = json.loads(partition("--partitions=4", "--json"))

    assert said == {"records": 100, "partitions": 4}
    assert rows() == held
    changed = shape()
    assert changed.pop("owner") == [("laid_out_owner",)] * 2
    assert changed == {name: value for name, value in before.items() if name != "owner"}
    assert layout.read_layout("default").primary_key == "PRIMARY KEY (id, scope)"
    assert number_of_partitions() == 4
    assert leftovers() == []
    assert all(count for (count,) in fetch("SELECT COUNT(*) FROM idempotency_key GROUP BY tableoid"))

    assert partition("--reverse") == "records: 100, partitions: 0"

    assert rows() == held
    assert shape() == before
    assert layout.read_layout("default").primary_key == "PRIMARY KEY (id)"
    assert leftovers() == []


def test_everything_works_afterwards(admin_client: Client) -> None:
    attempt = completed()
    partition()
    assert number_of_partitions() == 16
    call_command("idempotency_doctor", "--prove", "--json", stdout=StringIO())
    output = StringIO()
    call_command("migrate", "django_idempotency", stdout=output, no_color=True)
    assert "No migrations to apply" in output.getvalue()
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    pages = "/admin/django_idempotency/idempotencykey/"
    assert str(attempt.call.id) in admin_client.get(pages).content.decode()
    assert admin_client.get(f"{pages}{attempt.call.id}/change/").status_code == 200
    assert completed().call.id in rows()
    with connection.schema_editor() as editor:  # what a later migration may do
        editor.execute("ALTER TABLE idempotency_key ADD COLUMN later text, DROP CONSTRAINT idempotency_key_expiry")
    call_command("migrate", "django_idempotency", "zero", verbosity=0)
    assert (
        fetch(f"SELECT relname FROM pg_class WHERE relnamespace = '{SCHEMA}'::regnamespace AND relname ~ '_p0'") == []
    )


def test_a_dry_run_changes_nothing_and_says_all() -> None:
    """What it prints is what is executed."""
    fill(10)
    said = partition("--dry-run", noinput=False)
    assert (number_of_partitions(), leftovers()) == (0, [])
    statements = json.loads(partition("--dry-run", "--json"))["statements"]
    assert said == "\n".join(f"{statement};" for statement in statements)
    held = rows()
    with transaction.atomic():
        execute(*statements)
    assert rows() == held
    assert number_of_partitions() == 16
    assert leftovers() == []


def test_a_person_is_asked_and_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fill()
    asked = list[str]()

    def answer(text: str) -> Callable[[str], str]:
        return lambda question: asked.append(question) or text  # type: ignore[func-returns-value]

    monkeypatch.setattr("builtins.input", answer("y"))
    with pytest.raises(CommandError, match="Nothing was changed"):
        partition(noinput=False)
    assert number_of_partitions() == 0
    monkeypatch.setattr("builtins.input", answer("yes"))
    terminal = Terminal()
    call_command("idempotency_partition", stdout=StringIO(), stderr=terminal)
    assert connection.settings_dict["NAME"] in asked[0]
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "making the new table …"
    assert lines[-1] == "switching …"
    total = lines[-3].split()[2]
    assert lines[-3] == f"{total} of {total} pages, {RECORDS:,} records copied …"
    assert len(lines) > 5


def test_what_is_there_already() -> None:
    with pytest.raises(CommandError, match="idempotency_key has no partitions already"):
        partition("--reverse")
    partition("--partitions=2")
    with pytest.raises(CommandError, match="idempotency_key has 2 partitions already"):
        partition()


@pytest.mark.parametrize("number", ["1", "1025"])
def test_a_number_that_makes_no_sense(number: str) -> None:
    with pytest.raises(CommandError, match="--partitions must be at least 2, and 1024 at most"):
        partition(f"--partitions={number}")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "CREATE TABLE payment (record uuid REFERENCES idempotency_key (id))",
            r"Foreign key constraints of payment lead to idempotency_key\. .* db_constraint=False",
        ),
        ("CREATE VIEW keys AS SELECT key FROM idempotency_key", "depend on idempotency_key: .*view keys"),
        (
            "CREATE TRIGGER mine BEFORE UPDATE ON idempotency_key FOR EACH ROW"
            " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "depend on idempotency_key: trigger mine",
        ),
        ("CREATE POLICY mine ON idempotency_key", "depend on idempotency_key: policy mine"),
        ("CREATE PUBLICATION mine FOR TABLE idempotency_key", "depend on idempotency_key: publication .* mine"),
    ],
)
def test_what_depends_on_the_table(statement: str, message: str) -> None:
    execute(statement)
    with pytest.raises(CommandError, match=message):
        partition()
    assert (number_of_partitions(), leftovers()) == (0, [])


def test_a_key_that_is_unique_without_the_scope() -> None:
    execute("CREATE UNIQUE INDEX mine ON idempotency_key (fingerprint)")
    with pytest.raises(CommandError, match="unique constraint on partitioned table must include all partitioning"):
        partition()
    assert (number_of_partitions(), leftovers()) == (0, [])


def test_a_foreign_key_of_a_model_is_a_finding() -> None:
    """The next migration that makes its constraint would fail."""
    codes = [each.code for each in examine("default")]
    assert Code.FOREIGN_KEY not in codes
    partition()
    found = [each for each in examine("default") if each.code is Code.FOREIGN_KEY]
    assert [dict(each.values) for each in found] == [{"field": "payments.Payment.idempotency_key"}]


def test_a_foreign_key_without_a_constraint_is_emptied() -> None:
    execute(f"CREATE TABLE {SCHEMA}.payments_payment (LIKE public.payments_payment INCLUDING ALL)")
    partition()
    call = completed().call
    payment = Payment.objects.create(owner_id=1, amount=5, currency="EUR", idempotency_key_id=call.id)
    assert jobs.expire_now(call.ref("default"))
    assert deletion.delete([call.ref("default")], "default") == 1
    payment.refresh_from_db()
    assert payment.idempotency_key_id is None


class Ledger:
    """What requests were told while the records moved."""

    def __init__(self) -> None:
        self.ending = Event()
        self.won: dict[UUID, list[UUID]] = {}  # appended to by several threads
        self.bodies: dict[UUID, str] = {}
        self.gone: set[UUID] = set()
        self.rounds = [0] * 4

    def write(self, number: int) -> None:
        """One thread: keys that all threads want, and keys of its own that are freed, claimed again and deleted."""
        while not self.ending.is_set():
            turn = self.rounds[number]
            self._share(f"shared {turn}")
            self._complete(f"freed {number} {turn}", free=True)
            deleted = self._complete(f"deleted {number} {turn}")
            assert jobs.expire_now(deleted)
            assert deletion.delete([deleted], "default") == 1
            self.gone.add(deleted.id)
            self.rounds[number] += 1

    def _share(self, key: str) -> None:
        call, token = a_call(key), uuid4()
        if claims.insert_claim(call, token, "default", 30, namespace="test") is None:
            self.won.setdefault(call.id, []).append(token)
            with transaction.atomic():
                assert attempts.complete(call.ref("default"), token, reply(str(token)), success=True)
            self.bodies[call.id] = str(token)

    def _complete(self, key: str, *, free: bool = False) -> Any:
        call, token = a_call(key), uuid4()
        assert claims.insert_claim(call, token, "default", 30, namespace="test") is None
        if free:
            again = uuid4()
            assert attempts.free_key(call.ref("default"), token, "test")
            assert claims.retry(call, token, again, "default")
            token = again
        assert attempts.complete(call.ref("default"), token, reply(key), success=True)
        self.bodies[call.id] = key
        return call.ref("default")

    @contextmanager
    def writing(self) -> Iterator[None]:
        with ExitStack() as stack:
            outcomes = [
                stack.enter_context(running("default", partial(self.write, number)))
                for number in range(len(self.rounds))
            ]
            stack.callback(self.ending.set)
            yield
            self.ending.set()
            for each in outcomes:
                each.result(60)

    def more(self) -> None:
        """Every thread has made a round since now."""
        before = list(self.rounds)
        wait_until(lambda: all(now > then + 1 for now, then in zip(self.rounds, before, strict=True)))


def test_nothing_is_lost_or_claimed_twice_while_requests_write(settings: Any) -> None:
    """Some of their statements are prepared, and were planned for the table that is dropped."""
    settings.IDEMPOTENCY = {"PREPARED_STATEMENTS": True}
    fill()
    held = rows()
    ledger = Ledger()
    with ledger.writing():
        ledger.more()
        partition()
        assert number_of_partitions() == 16
        ledger.more()
        partition("--reverse")
        assert number_of_partitions() == 0
        ledger.more()
    found = rows()
    assert [winners for winners in ledger.won.values() if len(winners) > 1] == []
    assert {record: found[record] for record in held} == held
    body = COLUMNS.index("response_body")
    kept = {record: text for record, text in ledger.bodies.items() if record not in ledger.gone}
    assert {record: found[record][body].decode() for record in kept} == kept
    assert found.keys() == held.keys() | kept.keys()
    assert leftovers() == []


def unfinished() -> int:
    """How many records an unfinished run has copied; -1 if it has not begun."""
    if layout.read_layout("default").copy is None:
        return -1
    return int(fetch(f"SELECT COUNT(*) FROM {layout.NEW}")[0][0])


def lock_the_last_row() -> None:
    """So that the copy stops at the last pages."""
    execute("SELECT 1 FROM idempotency_key WHERE ctid = (SELECT MAX(ctid) FROM idempotency_key) FOR UPDATE")


def lock_the_first_row() -> None:
    execute("SELECT 1 FROM idempotency_key WHERE ctid = (SELECT MIN(ctid) FROM idempotency_key) FOR UPDATE")


def read_the_table() -> None:
    """So that everything is copied, and the switch waits."""
    execute("SELECT 1 FROM idempotency_key LIMIT 1")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("hold", "copied", "back"),
    [
        (lock_the_first_row, 0, False),
        (lock_the_last_row, RECORDS // 2, False),
        (read_the_table, RECORDS, False),
        (read_the_table, RECORDS, True),
    ],
)
def test_a_run_that_was_killed_is_continued(other: Actor, hold: Callable[[], None], copied: int, back: bool) -> None:
    arguments = ["--reverse"] if back else []
    fill()
    if back:
        partition()
    held = rows()
    with held_open(other, hold):
        kill_a_run(arguments, lambda: unfinished() >= copied)
    written = completed().call.id
    lost, changed, *_ = held
    IdempotencyKey.objects.filter(id=lost).delete()
    IdempotencyKey.objects.filter(id=changed).update(last_error_code="changed")
    expected = rows()
    partition(*arguments)
    assert rows() == expected
    assert expected.keys() == (held.keys() - {lost}) | {written}
    assert (number_of_partitions() == 0) is back
    assert leftovers() == []


@pytest.fixture
def other(migrated: None) -> Iterator[Actor]:
    """Another connection to the same schema."""
    settings = connection.settings_dict
    with actors(1) as (actor,):
        actor.do(connect_with, settings)
        yield actor


def connect_with(settings: dict[str, Any]) -> None:
    """Give this thread settings of its own: those of a connection that Django made belong to all threads."""
    wrapper = connection.copy()
    wrapper.settings_dict.update(settings)
    connections["default"] = wrapper


def kill_a_run(arguments: list[str], is_far_enough: Callable[[], bool]) -> None:
    settings = connection.settings_dict
    password = f":{settings['PASSWORD']}" if settings["PASSWORD"] else ""
    url = f"postgresql://{settings['USER']}{password}@{settings['HOST']}:{settings['PORT']}/{settings['NAME']}"
    command = [sys.executable, "manage.py", "idempotency_partition", "--noinput", *arguments]
    environment = {**os.environ, "DATABASE_URL": url, "PGOPTIONS": settings["OPTIONS"]["options"]}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: is_far_enough() or process.poll() is not None)
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
        finally:
            process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def stop_a_run(actor: Actor, hold: Callable[[], None], *arguments: str) -> str:
    """Make a run that gives up, and return what it said."""
    with held_open(actor, hold), pytest.raises(CommandError) as stopped:
        partition(*arguments)
    return str(stopped.value)


@pytest.mark.usefixtures("quick")
def test_a_run_gives_up_and_is_undone(other: Actor) -> None:
    fill(50)
    assert "held locks on idempotency_key in each of 2 tries" in stop_a_run(other, read_the_table)
    assert unfinished() == 50
    with pytest.raises(CommandError, match="An unfinished run was to make 16 partitions"):
        partition("--partitions=8")
    assert partition("--reverse") == "partitions: 0"
    assert (number_of_partitions(), leftovers()) == (0, [])
    partition("--partitions=8")
    stop_a_run(other, read_the_table, "--reverse")
    assert partition() == "partitions: 8"
    assert (number_of_partitions(), leftovers()) == (8, [])


@pytest.mark.usefixtures("quick")
def test_a_copy_that_differs_is_not_switched_to(other: Actor) -> None:
    fill(50)
    stop_a_run(other, read_the_table)
    execute(f"UPDATE {layout.NEW} SET response_body = 'other' WHERE key = '7'")
    with pytest.raises(CommandError, match="its copy 50, or their contents differ"):
        partition()
    execute(f"DELETE FROM {layout.NEW}")
    assert partition() == "records: 50, partitions: 16"  # what is not there is copied again


def test_a_connection_that_is_lost(other: Actor) -> None:
    fill(50)
    with held_open(other, read_the_table), running("default", partition) as outcome:
        waiting = "SELECT pid FROM pg_stat_activity WHERE datname = CURRENT_DATABASE() AND query LIKE 'LOCK TABLE%'"
        ((number,),) = wait_until(lambda: fetch(waiting))
        kill(number)
        with pytest.raises(CommandError, match="The database did not answer, or reported an error"):
            outcome.result(60)
    assert partition() == "records: 50, partitions: 16"


def test_another_run_was_quicker() -> None:
    """It looks again once it has the lock, and drops nothing."""
    fill(50)
    held = rows()
    slow = partitions.plan_partitions("default", 16)
    assert isinstance(slow, partitions.Partitioning)
    partition()
    with transaction.atomic(), pytest.raises(layout.Refused, match="Another run has changed idempotency_key"):
        slow._switch(slow.layout)
    assert rows() == held


def test_a_transaction_that_would_not_delete_the_copy() -> None:
    """It began before its row was copied, and cannot see the copy: it fails, as it may under this isolation level."""
    call = completed().call
    assert jobs.expire_now(call.ref("default"))
    change = partitions.plan_partitions("default", 2)
    assert isinstance(change, partitions.Partitioning)
    options = {**connection.settings_dict["OPTIONS"], "isolation_level": psycopg.IsolationLevel.REPEATABLE_READ}
    with another_alias("repeatable", OPTIONS=options) as using, transaction.atomic(using=using):
        find(call.ref(using))
        elsewhere(lambda: execute(*change.plan.build))
        with pytest.raises(OperationalError, match="the record is being copied"):
            deletion.delete([call.ref(using)], using)
        transaction.set_rollback(True, using=using)
    assert call.id in rows()
