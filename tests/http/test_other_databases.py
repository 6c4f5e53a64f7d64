"""An atomic view that writes to another database is told so: those writes are repeated after a failure."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import Misplaced
from django_idempotency.flow import other_databases
from django_idempotency.flow.other_databases import is_write
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import once
from tests.kit.http import Person, Ran

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "audit"]), pytest.mark.vendor]

Serve = Callable[..., None]


@pytest.fixture(scope="module", autouse=True)
def _other_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    default = connections["default"].settings_dict
    name = str(tmp_path_factory.mktemp("other") / "audit.sqlite3")
    own = {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": {}, "ATOMIC_REQUESTS": False}
    connections.settings["audit"] = {**default, **own}
    yield
    connections["audit"].close()
    del connections["audit"]
    del connections.settings["audit"]


@pytest.fixture
def audit() -> Iterator[None]:
    """Another database, with one table."""
    execute("CREATE TABLE entry (run integer)")
    other_databases._warned.clear()
    yield
    execute("DROP TABLE entry")


def execute(sql: str) -> list[Any]:
    with connections["audit"].cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def entries() -> int:
    return int(execute("SELECT COUNT(*) FROM entry")[0][0])


@pytest.fixture
def serve(settings: Any, audit: None, transactional_db: None) -> Serve:
    def at(sql: str = "INSERT INTO entry VALUES (1)", **policy: Any) -> None:
        def view(request: HttpRequest) -> HttpResponse:
            execute(sql)
            if Ran.again() == 1:
                raise RuntimeError("planned")
            return HttpResponse(status=201)

        patterns = [path("it", idempotent(**{"mode": "atomic", **policy})(view), name="it")]
        settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": patterns})

    return at


def test_a_write_to_another_database_is_repeated_and_warned_of_once(
    alice: Person, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    serve()
    assert [alice.post("/it").status_code for _ in range(2)] == [500, 201]
    assert entries() == 2, "this is what the warning is about"
    (warning,) = [each.getMessage() for each in caplog.records if each.name == "django_idempotency"]
    assert "'it'" in warning
    assert "'audit'" in warning


def test_a_policy_that_refuses_such_writes_stops_the_first(
    alice: Person, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    serve(other_writes="refuse")
    assert alice.post("/it").status_code == 500
    assert "The operation 'it' has mode='atomic' and writes to the database 'audit'" in caplog.text
    assert (entries(), IdempotencyKey.objects.count(), Ran.count) == (0, 0, 0)


@pytest.mark.parametrize("policy", [{"other_writes": "allow"}, {"mode": "leased"}, {"sql": "SELECT * FROM entry"}])
def test_other_views_are_not_warned(
    alice: Person, serve: Serve, policy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    Ran.count = 1
    serve(**policy)
    assert alice.post("/it").status_code == 201
    assert "audit" not in caplog.text


def test_a_database_without_its_driver_is_ignored(alice: Person, serve: Serve) -> None:
    Ran.count = 1
    serve("SELECT * FROM entry")
    connections.settings["absent"] = {**connections.settings["audit"], "ENGINE": "no.such.engine"}
    try:
        assert alice.post("/it").status_code == 201
    finally:
        del connections.settings["absent"]


@pytest.mark.usefixtures("audit")
def test_once_refuses_them_too() -> None:
    def run(claim: Any) -> None:
        execute("INSERT INTO entry VALUES (1)")

    with pytest.raises(Misplaced, match="audit"):
        once(scope="nightly", key="k", run=run, mode="atomic", other_writes="refuse")
    assert entries() == 0
    execute("INSERT INTO entry VALUES (1)")  # outside, nobody watches


@pytest.mark.parametrize(
    ("statement", "writes"),
    [
        ("INSERT INTO a VALUES (1)", True),
        ("  update a set b = 1", True),
        ("/* who */ DELETE FROM a", True),
        ("-- who\nDELETE FROM a", True),
        ("WITH x AS (SELECT 1) INSERT INTO a SELECT * FROM x", True),
        ("WITH x AS (DELETE FROM a RETURNING *) SELECT * FROM x", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x FOR UPDATE", False),
        ("SELECT * FROM a FOR UPDATE", False),
        ("SELECT 'INSERT INTO a'", False),
        ("SAVEPOINT a", False),
        ("(SELECT 1) UNION (SELECT 2)", False),
    ],
)
def test_what_counts_as_a_write(statement: str, writes: bool) -> None:
    assert is_write(statement) is writes
