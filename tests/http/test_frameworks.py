"""One list of behaviours, run against every framework. docs/reference/frameworks.md shows it as a table."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_idempotency.models import IdempotencyKey
from tests.http.disconnecting import PATIENCE, Exchange
from tests.kit.frameworks import FRAMEWORKS, Framework
from tests.kit.http import MIDDLEWARE, Person, same_answer
from tests.kit.journal import Journal
from tests.kit.threads import actors, wait_until

pytest.importorskip("ninja", reason="NOT TESTED: django-ninja is not installed")
pytest.importorskip("strawberry", reason="NOT TESTED: strawberry-graphql is not installed")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.kit.framework_views"),
    pytest.mark.parametrize("framework", FRAMEWORKS, ids=str),
]

CSRF = "c" * 32


@pytest.fixture
def journal(framework: Framework, settings: Any, tmp_path: Path) -> Journal:
    settings.VAR = tmp_path
    if framework.middleware:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    return Journal(tmp_path)


@pytest.fixture
def _threads_close_their_connections() -> Iterator[None]:
    age, connection.settings_dict["CONN_MAX_AGE"] = connection.settings_dict["CONN_MAX_AGE"], 0
    yield
    connection.settings_dict["CONN_MAX_AGE"] = age
    gc.collect()  # a connection that is left open says so when it is collected


def send(person: Person, framework: Framework, name: str = "lamp", *, fail: bool = False) -> Any:
    return person.post(framework.path, framework.body(name, fail=fail))


def ran(response: Any) -> bool:
    """True if the view ran for this response, and succeeded."""
    return response.status_code // 100 == 2 and "Idempotency-Replayed" not in response


def refused(response: Any, status: int, code: str) -> bool:
    assert response["Content-Type"] == "application/problem+json"
    return (response.status_code, response.json()["code"]) == (status, f"idempotency_{code}")


def test_new(framework: Framework, alice: Person, journal: Journal) -> None:
    assert ran(send(alice, framework))
    assert (journal.count("lamp"), IdempotencyKey.objects.get().status) == (1, "completed")


def test_replay(framework: Framework, alice: Person, journal: Journal) -> None:
    first, second = send(alice, framework), send(alice, framework)
    assert ran(first)
    assert same_answer(first, second)
    assert journal.count("lamp") == 1


def test_mismatch(framework: Framework, alice: Person, journal: Journal) -> None:
    first = send(alice, framework, "lamp")
    assert refused(send(alice, framework, "chair"), 422, "key_reused_with_different_payload")
    assert same_answer(first, send(alice, framework, "lamp"))
    assert (journal.count("lamp"), journal.count("chair")) == (1, 0)


def test_no_key(framework: Framework, alice: Person, journal: Journal) -> None:
    assert refused(alice.post(framework.path, framework.body("lamp"), key=None), 400, "key_missing")
    assert (journal.count("lamp"), IdempotencyKey.objects.count()) == (0, 0)


def test_in_flight(framework: Framework, alice: Person, journal: Journal) -> None:
    with actors(1) as (other,):
        with journal.gate_closed():
            first = other.start(send, alice, framework)
            wait_until(lambda: journal.count("lamp") or first.done())
            told = send(alice, framework)
            assert refused(told, 409, "key_in_progress")
            assert (told["Retry-After"], told.json()["safe_new_key"]) == ("2", False)
        assert ran(first.result(PATIENCE))
    assert journal.count("lamp") == 1


def test_other_user(framework: Framework, alice: Person, journal: Journal) -> None:
    first, second = send(alice, framework), send(Person("bob"), framework)
    assert ran(first)
    assert ran(second)
    assert (first.content != second.content, journal.count("lamp")) == (True, 2)


def test_unauthenticated(framework: Framework, alice: Person, anonymous: Person, journal: Journal) -> None:
    new = send(anonymous, framework)
    assert (new.status_code, IdempotencyKey.objects.count()) == (framework.unauthenticated, 0)
    first, existing = send(alice, framework), send(anonymous, framework)
    assert (existing.status_code, existing.content) == (framework.unauthenticated, new.content)
    assert first.content not in existing.content
    assert (IdempotencyKey.objects.count(), journal.count("lamp")) == (1, 1)


def test_raise(framework: Framework, alice: Person, journal: Journal) -> None:
    first, *retries = (send(alice, framework, fail=True) for _ in range(3))
    assert first.status_code == framework.raised
    assert all(refused(retry, 409, "outcome_unknown") for retry in retries)
    assert journal.count("lamp") == 1


@pytest.mark.usefixtures("_threads_close_their_connections")
def test_disconnect(framework: Framework, alice: Person, journal: Journal) -> None:
    alice.client.cookies["csrftoken"] = CSRF
    exchange = Exchange(framework.path, alice, data=framework.body("lamp"))
    exchange.scope["headers"].append((b"x-csrftoken", CSRF.encode()))

    async def hang_up() -> None:
        task = asyncio.ensure_future(exchange.run())
        with journal.gate_closed():
            await asyncio.to_thread(wait_until, lambda: journal.count("lamp") or task.done())
            exchange.gone.set()
            for _ in range(20):
                await asyncio.sleep(0)  # the handler sees the disconnect and cancels the view
        await asyncio.wait_for(task, PATIENCE)

    asyncio.run(hang_up())
    assert exchange.sent == []
    wait_until(lambda: IdempotencyKey.objects.get().status != "in_progress")
    retry = send(alice, framework)
    assert (retry.status_code, retry["Idempotency-Replayed"]) == (200, "true")
    assert journal.count("lamp") == 1
