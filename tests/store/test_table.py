"""The table in code, the constraints in the database and the statements in the store say the same."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from django_idempotency import Status, store
from django_idempotency.core.states import LostLease
from django_idempotency.core.transitions import TRANSITIONS, Edge
from django_idempotency.flow.unattended import match_resumable
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.store import attempts, claims, jobs, records
from django_idempotency.store.dialects import DIALECTS, Statement, adapt
from docs.pictures.states import ABSENT, COLOURS, DELETED, moves
from tests.kit.rows import FUTURE, NAMESPACE, PAST, SCOPE, Row, a_call, a_row, put
from tests.store.verbs import ALL

pytestmark = pytest.mark.vendor

TABLE = "idempotency_key"


def statements() -> set[Statement]:
    modules = [
        importlib.import_module(f"{store.__name__}.{each.name}") for each in pkgutil.iter_modules(store.__path__)
    ]
    return {value for module in modules for value in vars(module).values() if isinstance(value, Statement)}


# The table and the statements


def test_statements_cite_only_rows_that_exist() -> None:
    known = {each.cite for each in TRANSITIONS}
    assert {cite for statement in statements() for cite in statement.cites} <= known


def test_every_row_that_changes_a_record_is_cited() -> None:
    changing = {each.cite for each in TRANSITIONS if each.target is not Edge.SAME}
    assert {cite for statement in statements() for cite in statement.cites} == changing


def test_every_statement_that_writes_is_held_against_the_table() -> None:
    reads = {each for each in statements() if all(each.text(vendor).startswith("SELECT ") for vendor in DIALECTS)}
    elsewhere = {each for each in statements() if all(TABLE not in each.text(vendor) for vendor in DIALECTS)}
    assert {verb.statement for verb in ALL} == statements() - reads - elsewhere
    assert not any(each.cites for each in reads)
    assert all(each.cites for each in statements() - reads - elsewhere)


# A row may have columns that only later code names. What lies in parentheses names its own columns.
UNNAMED = re.compile(r"(SELECT|RETURNING)\s+(\w+\.)?\*(?!\s+FROM\s*\()|INSERT\s+INTO\s+\S+\s+(?!\()", re.IGNORECASE)


@pytest.mark.parametrize("vendor", DIALECTS)
def test_every_statement_names_its_columns(vendor: str) -> None:
    assert [each.text(vendor) for each in statements() if UNNAMED.search(each.text(vendor))] == []


@pytest.mark.parametrize(
    "planted",
    [
        "SELECT * FROM idempotency_key",
        "SELECT key.* FROM idempotency_key AS key",
        "SELECT * FROM (SELECT * FROM idempotency_key) AS page",
        "INSERT INTO idempotency_key VALUES (1)",
        "INSERT INTO idempotency_key SELECT 1",
        "UPDATE idempotency_key SET status = 'x' RETURNING *",
    ],
)
def test_a_statement_that_names_no_columns_is_found(planted: str) -> None:
    assert UNNAMED.search(planted)


# The constraints: each refuses the row that its name forbids, and lets its neighbour in

NOW = timezone.now()
ANSWER: Row = {"response_status": 200, "completed_at": NOW}
IMPOSSIBLE: list[tuple[str, Status, Row]] = [
    ("lease", Status.PENDING, {"locked_until": None}),
    ("lease", Status.IN_PROGRESS, {"locked_until": None}),
    *(("lease", each, {"locked_until": NOW}) for each in Status if each not in (Status.PENDING, Status.IN_PROGRESS)),
    ("token", Status.IN_PROGRESS, {"attempt_token": None}),
    ("token", Status.UNKNOWN, {"attempt_token": None}),
    ("doubt_due", Status.UNKNOWN, {"reconcile_after": None}),
    *(("doubt_due", each, {"reconcile_after": NOW}) for each in Status if each is not Status.UNKNOWN),
    ("answer", Status.COMPLETED, {"response_status": None}),
    ("answer", Status.COMPLETED, {"completed_at": None}),
    ("answer", Status.FAILED, {"response_status": None}),
    ("answer", Status.FAILED, {"completed_at": None}),
    *(("answer", each, ANSWER) for each in Status if each not in (Status.COMPLETED, Status.FAILED, Status.EXPIRED)),
    ("pending", Status.PENDING, {"deferred": False}),
    *(("expiry", each, {"expires_at": NOW}) for each in (Status.IN_PROGRESS, Status.UNKNOWN, Status.DEAD_LETTER)),
]
POSSIBLE: list[tuple[Status, Row]] = [
    *((each, {}) for each in Status),
    *((each, {"attempt_token": None}) for each in Status if each not in (Status.IN_PROGRESS, Status.UNKNOWN)),
    *((each, {"expires_at": None}) for each in Status),
    *((each, {"deferred": False}) for each in Status if each is not Status.PENDING),
    *((each, {"deferred": True}) for each in Status),
    (Status.EXPIRED, {"response_status": None, "completed_at": None}),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("constraint", "status", "columns"), IMPOSSIBLE)
def test_impossible_rows_are_refused(constraint: str, status: Status, columns: Row) -> None:
    with pytest.raises(IntegrityError, match=f"idempotency_key_{constraint}"), transaction.atomic():
        put(status, **columns)


@pytest.mark.django_db
@pytest.mark.parametrize(("status", "columns"), POSSIBLE)
def test_possible_rows_are_let_in(status: Status, columns: Row) -> None:
    put(status, **columns)
    assert IdempotencyKey.objects.get().status == status


@pytest.mark.django_db
def test_a_status_that_the_code_does_not_know_is_refused() -> None:
    put(Status.DEAD_LETTER)
    with pytest.raises(IntegrityError, match="idempotency_key_status"), transaction.atomic():
        IdempotencyKey.objects.update(status="lost")


@pytest.mark.django_db
def test_table_database_and_diagram_know_the_same_states_and_changes() -> None:
    in_database = set(re.findall(r"'([^']+)'", check_clause("idempotency_key_status")))
    in_table = {state for each in TRANSITIONS for state in (*each.sources, each.target) if isinstance(state, Status)}
    assert set(Status) == in_table == in_database == set(COLOURS) - {ABSENT, DELETED}
    changes = {
        (source, str(each.target.value))
        for each in TRANSITIONS
        for source in each.sources or {ABSENT}
        if each.target is not Edge.SAME and each.target is not source
    }
    assert changes == {(source, target) for source, targets in moves().items() for target in targets}


def check_clause(name: str) -> str:
    text, parameters = {
        "postgresql": ("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [name]),
        "mysql": (
            "SELECT check_clause FROM information_schema.check_constraints "
            "WHERE constraint_schema = DATABASE() AND constraint_name = %s",
            [name],
        ),
        "sqlite": ("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = %s", [TABLE]),
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)
        found = str(cursor.fetchone()[0])
    if connection.vendor == "sqlite":
        declared = re.search(rf'CONSTRAINT "{name}" CHECK \((.*?)\)\)', found)
        assert declared
        return declared[1]
    return found


# The keys


def introspected() -> dict[str, Any]:
    with connection.cursor() as cursor:
        return connection.introspection.get_constraints(cursor, TABLE)


@pytest.mark.django_db
def test_scope_and_key_are_unique_together_key_first() -> None:
    found = [each["columns"] for each in introspected().values() if each["unique"] and not each["primary_key"]]
    assert found == [["key", "scope"]]


@pytest.mark.django_db
def test_one_scope_and_key_can_stand_only_once() -> None:
    put(Status.DEAD_LETTER)
    with pytest.raises(IntegrityError), transaction.atomic():
        IdempotencyKey.objects.create(id=uuid4(), scope=SCOPE, key="key", **a_row(Status.DEAD_LETTER))
    IdempotencyKey.objects.create(id=uuid4(), scope="other", key="key", **a_row(Status.DEAD_LETTER))


ALIKE = ["a", "A", "a ", " a", "\u00e4", "a\u0308", "\u00c4", "\u00df", "ss", "a\u200b", "\uff41"]


@pytest.mark.django_db
@pytest.mark.parametrize("side", ["key", "scope"])
def test_text_is_compared_byte_for_byte(side: str) -> None:
    """Case, padding, composed and decomposed letters: what a person reads as equal are different keys."""
    tokens = {}
    for text in ALIKE:
        tokens[text] = uuid4()
        assert claims.insert_claim(a_call(**{side: text}), tokens[text], "default", namespace=NAMESPACE) is None, text
    for text in ALIKE:
        call = a_call(**{side: text})
        (row,) = IdempotencyKey.objects.filter(key=call.key, scope=call.scope)
        by_key = records.find_by_key(call.scope, call.key, "default")
        assert row.attempt_token == tokens[text]
        assert by_key is not None
        assert by_key.token == tokens[text]


# The indexes


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "column", "partial"),
    [
        ("idempotency_key_overdue", "locked_until", True),
        ("idempotency_key_due", "reconcile_after", True),
        ("idempotency_key_expired", "expires_at", True),
        ("idempotency_key_created", "created_at", False),
    ],
)
def test_indexes_are_named_for_their_use(name: str, column: str, partial: bool) -> None:
    assert introspected()[name]["columns"] == [column]
    if connection.vendor == "mysql":
        return
    text = {
        "postgresql": "SELECT indexdef FROM pg_indexes WHERE indexname = %s",
        "sqlite": "SELECT sql FROM sqlite_master WHERE name = %s",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(text, [name])
        assert ("IS NOT NULL" in cursor.fetchone()[0]) is partial


@pytest.mark.django_db
def test_there_is_no_other_index() -> None:
    plain = {name for name, each in introspected().items() if each["index"] and not each["unique"]}
    assert plain == {
        "idempotency_key_overdue",
        "idempotency_key_due",
        "idempotency_key_expired",
        "idempotency_key_created",
    }


def crowd() -> None:
    """Thousands of records, few of them due: what a sweep meets on a busy day."""
    now = timezone.now()

    def many(count: int, status: Status, also: Row | None = None, **columns: Any) -> Iterator[IdempotencyKey]:
        row = a_row(status) | (also or {})
        for number in range(count):
            spread = {name: value + timedelta(seconds=number) for name, value in columns.items()}
            yield IdempotencyKey(id=uuid4(), scope=SCOPE, key=f"{status} {columns} {number}", **{**row, **spread})

    IdempotencyKey.objects.bulk_create(
        [
            *many(3000, Status.COMPLETED, expires_at=now + FUTURE),
            *many(40, Status.COMPLETED, expires_at=now + 2 * PAST),
            *many(500, Status.IN_PROGRESS, locked_until=now + FUTURE),
            *many(40, Status.IN_PROGRESS, locked_until=now + 2 * PAST),
            *many(40, Status.PENDING, locked_until=now + 2 * PAST),
            *many(40, Status.UNKNOWN, reconcile_after=now + 2 * PAST),
            *many(
                40, Status.UNKNOWN, {"run_name": "export", "on_lost_lease": "resume"}, reconcile_after=now + 3 * PAST
            ),
        ],
        batch_size=500,
    )
    if connection.vendor != "mysql":  # there it would commit, and is not needed
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE {TABLE}")


@pytest.mark.slow
@pytest.mark.django_db
def test_pages_and_lookups_use_their_index() -> None:
    crowd()
    for index, statement, page in (
        ("idempotency_key_overdue", jobs.LOST, jobs.find_lost),
        ("idempotency_key_overdue", jobs.WAITING, jobs.find_waiting),
        ("idempotency_key_due", jobs.UNKNOWN_DUE, jobs.find_doubts),
        ("idempotency_key_due", jobs.RESUMABLE, jobs.find_resumable),
        ("idempotency_key_expired", jobs.PAST, jobs.find_past),
    ):
        assert index in plan(statement, "bigint, float8", limit=100, began=-1)
        assert len(page(25, "default")) == 25
        assert len(page(100, "default")) == 40
    some = IdempotencyKey.objects.first()
    assert some is not None
    assert "idempotency_key_pkey" in plan(records.FIND, "text, uuid", scope=SCOPE, id=some.id)
    assert "idempotency_key_scope_key" in plan(records.FIND_BY_KEY, "text, text", key=some.key, scope=SCOPE)


def plan(statement: Statement, types: str, **values: Any) -> str:
    """How the database would run it; on PostgreSQL without looking at the values. Automatic names read as there."""
    text, names = statement.text(connection.vendor), AUTOMATIC_NAMES
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            numbered = {name: f"${number}" for number, name in enumerate(values, start=1)}
            cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            cursor.execute(f"PREPARE asked ({types}) AS {text % numbered}")
            cursor.execute(f"EXPLAIN EXECUTE asked ({', '.join(['%s'] * len(values))})", list(values.values()))
            found = cursor.fetchall()
            cursor.execute("DEALLOCATE asked")
            cursor.execute(INDEXES_OF_PARTITIONS)
            names = dict(cursor.fetchall())
        else:
            explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
            cursor.execute(f"{explain} {text}", adapt(connection.vendor, values))
            found = cursor.fetchall()
    lines = "\n".join(str(line) for line in found)
    for automatic, name in names.items():
        lines = lines.replace(automatic, name)
    return lines


AUTOMATIC_NAMES = {
    "PRIMARY": "idempotency_key_pkey",
    "sqlite_autoindex_idempotency_key_1": "idempotency_key_pkey",
    "sqlite_autoindex_idempotency_key_2": "idempotency_key_scope_key",
}
INDEXES_OF_PARTITIONS = """
    SELECT part.relname, whole.relname FROM pg_inherits
    JOIN pg_class part ON part.oid = inhrelid JOIN pg_class whole ON whole.oid = inhparent AND whole.relkind = 'I'
"""


# What a deployment sees


@pytest.mark.django_db
def test_bodies_are_compressed_with_lz4_where_postgresql_has_it() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL compresses columns")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        offered = cursor.fetchone()[0]
        cursor.execute(
            "SELECT attcompression FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'response_body'",
            [TABLE],
        )
        assert cursor.fetchone()[0] == ("l" if offered else "")


NARROW = {"audit_seconds", "tainted", "deferred"}  # at most four bytes each


@pytest.mark.django_db
def test_the_columns_that_the_end_of_an_attempt_changes_stand_together() -> None:
    """PostgreSQL logs of an update what lies between the first and the last change."""
    assignments = attempts.COMPLETE.text("postgresql").partition(" WHERE ")[0].partition(" SET ")[2]
    changed = set(re.findall(r"(\w+) = ", assignments)) - {"last_error_code"}  # empty unless a retry completes
    with connection.cursor() as cursor:
        columns = [each.name for each in connection.introspection.get_table_description(cursor, TABLE)]
    assert columns == [field.column for field in IdempotencyKey._meta.concrete_fields]
    places = [columns.index(name) for name in changed]
    assert set(columns[min(places) : max(places) + 1]) - changed == NARROW


@pytest.mark.django_db
def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.django_db
def test_a_record_and_an_event_say_what_they_are() -> None:
    put(Status.UNKNOWN, operation="pay")
    assert str(IdempotencyKey.objects.get()) == "pay: unknown"
    assert str(IdempotencyEvent(kind="in doubt", transition="T5")) == "in doubt T5"


@pytest.mark.django_db
def test_questions_for_people() -> None:
    now = timezone.now()
    put(Status.IN_PROGRESS, key="running")
    put(Status.IN_PROGRESS, key="overdue", locked_until=now + PAST)
    put(Status.UNKNOWN, key="due")
    put(Status.UNKNOWN, key="later", reconcile_after=now + FUTURE)
    put(Status.DEAD_LETTER, key="dead")
    IdempotencyEvent.objects.create(record_id=IdempotencyKey.objects.get(key="dead").id, kind="dead letter")
    put(Status.PENDING, key="fresh", last_run_at=now + PAST, last_error_code="")
    put(Status.PENDING, key="put back", last_run_at=now + PAST, last_error_code="NotExecuted")
    put(Status.UNKNOWN, key="resumed", run_name="tests.run", on_lost_lease="resume")

    def keys(queryset: Any) -> set[str]:
        return set(queryset.values_list("key", flat=True))

    questions = IdempotencyKey.objects
    assert keys(questions.overdue()) == {"overdue"}
    assert keys(questions.dead_letters()) == {"dead"}
    assert keys(questions.waiting(-2 * PAST)) == {"fresh"}
    assert keys(questions.waiting(-PAST / 2)) == {"fresh", "put back"}
    assert keys(questions.filter(match_resumable())) == {"resumed"}


@pytest.mark.parametrize("kind", LostLease)
def test_choices_fit_their_column(kind: LostLease) -> None:
    assert (kind.value, kind.value) in (IdempotencyKey._meta.get_field("on_lost_lease").choices or [])
