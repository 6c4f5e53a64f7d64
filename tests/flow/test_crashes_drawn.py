"""Each crash of docs/explanation/how-it-fails.md: a process is killed there, and what is left is what is drawn."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path

from django_idempotency import json_reply, signals
from django_idempotency.decorators import idempotent
from django_idempotency.maintenance import reconcile, sweep
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, NotLanded, Verdict, reconciler
from django_idempotency.testing import grace_over, lease_over
from docs.pictures.crashes import CRASHES, PAGE, Crash, page, picture
from docs.pictures.drawing import IMAGES
from testproject.payments.models import LedgerEntry
from tests.kit.databases import sessions
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True), pytest.mark.vendor]

BODY = {"amount": 5}


class World:
    """A provider that knows its keys, and what happens when the view arrives at a point."""

    folder = Path()
    at: dict[str, Callable[[], object]] = {}

    @classmethod
    def reach(cls, point: str) -> None:
        cls.at.pop(point, lambda: None)()

    @classmethod
    def charge(cls, key: str) -> None:
        (cls.folder / key).touch()

    @classmethod
    def charges(cls) -> int:
        return len(list(cls.folder.iterdir()))


def book() -> HttpResponse:
    LedgerEntry.objects.create(reference="drawn", account="cash", amount=5)
    return JsonResponse({"booked": True}, status=201)


@idempotent(operation="drawn.leased", mode="leased", transaction="late", share_anonymous=True)
def leased(request: Any) -> HttpResponse:
    World.reach("before the call")
    World.charge(request.idempotency.derive("charge"))
    World.reach("after the call")
    answer: HttpResponse = request.idempotency.finish(book)
    return answer


@idempotent(operation="drawn.atomic", mode="atomic", share_anonymous=True)
def atomic(request: HttpRequest) -> HttpResponse:
    answer = book()
    World.reach("during the view")
    return answer


urlpatterns = [path("leased", leased, name="leased"), path("atomic", atomic, name="atomic")]


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, registrations: None) -> None:
    World.folder, World.at = tmp_path, {}

    @reconciler("drawn.leased")
    def ask(record: IdempotencyKey) -> Verdict:
        if not (World.folder / record.derive("charge")).exists():
            return NotLanded()
        return Landed(write=lambda: json_reply(201, {"booked": bool(book())}))


def die(*_arguments: object, **_payload: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def statement_that_kills(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    return die() if "idempotency_key" in sql else execute(sql, params, many, context)


def update_that_kills(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    return die() if sql.startswith("UPDATE idempotency_key") else execute(sql, params, many, context)


def kill_at_commit(arrived: bool) -> None:
    wrapper: Any = connection
    commit = wrapper._commit

    def interrupted() -> None:
        if arrived:
            commit()
        die()

    wrapper._commit = interrupted


WRITES: Final = ("after the call", "during the view")  # a COMMIT comes after each
ARM: Final[dict[str, Callable[[ExitStack], object]]] = {
    "before the claim": lambda stack: stack.enter_context(connection.execute_wrapper(statement_that_kills)),
    "after the claim": lambda _: signals.reserved.connect(die, weak=False),
    "before the call": lambda _: World.at.update({"before the call": die}),
    "during the view": lambda _: World.at.update({"during the view": die}),
    "after the call": lambda _: World.at.update({"after the call": die}),
    "COMMIT lost": lambda _: World.at.update(dict.fromkeys(WRITES, partial(kill_at_commit, arrived=False))),
    "COMMIT arrived": lambda _: World.at.update(dict.fromkeys(WRITES, partial(kill_at_commit, arrived=True))),
    "before the response": lambda _: signals.completed.connect(die, weak=False),
}


def in_another_process(work: Callable[[], object], *, killed: bool = True) -> None:
    connections.close_all()
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) is killed, "it was not where it was to be killed"
    wait_until(lambda: sessions() == 1)  # the server has noticed


def send(mode: str, key: str) -> HttpResponse:
    return Client().post(f"/{mode}", BODY, "application/json", headers={"Idempotency-Key": key})  # type: ignore[return-value]


def kind_of(answer: Any) -> str:
    if answer.status_code == 201:
        return "replay" if "Idempotency-Replayed" in answer.headers else "runs"
    return {"idempotency_key_in_progress": "running", "idempotency_outcome_unknown": "unknown"}[answer.json()["code"]]


def record() -> IdempotencyKey:
    return IdempotencyKey.objects.get(scope__contains="drawn.")


def request_that_dies(crash: Crash, key: str) -> None:
    with ExitStack() as stack:
        ARM[crash.name](stack)
        send(crash.mode, key)


def sweep_that_dies() -> None:
    with connection.execute_wrapper(update_that_kills):
        sweep()


def lose_the_lease() -> None:
    lease_over(record())
    sweep()


def settle_as_not_executed(key: str) -> None:
    lose_the_lease()
    grace_over(record())
    reconcile()
    assert kind_of(send("leased", key)) == "runs"


def play(crash: Crash, key: str) -> None:
    if crash.name == "client gone":  # the server finishes; nobody reads the response
        in_another_process(lambda: send(crash.mode, key), killed=False)
    elif crash.name == "sweeper":
        in_another_process(lambda: request_that_dies(crash._replace(name="after the call"), key))
        lease_over(record())
        in_another_process(sweep_that_dies)
    elif crash.name == "late handler":
        World.at["after the call"] = lose_the_lease
        assert kind_of(send("leased", key)) == "runs"
    elif crash.name == "late handler after a verdict":
        World.at["before the call"] = partial(settle_as_not_executed, key)
        assert kind_of(send("leased", key)) == "replay"
    else:
        in_another_process(lambda: request_that_dies(crash, key))


def left_behind() -> tuple[str, int, int]:
    found = IdempotencyKey.objects.filter(scope__contains="drawn.").values_list("status", flat=True)
    return next(iter(found), ""), LedgerEntry.objects.count(), World.charges()


def settle() -> str:
    """Let the maintenance jobs run after lease and grace period, and return what the reconciler found."""
    lose_the_lease()
    assert record().status in ("unknown", "completed")
    grace_over(record())
    counts = reconcile()
    return next((name.replace("_", " ") for name in ("landed", "not_executed") if counts.get(name)), "")


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: f"{crash.mode}, {crash.name}")
def test_what_a_crash_leaves_is_what_is_drawn(crash: Crash) -> None:
    key = uuid4().hex
    play(crash, key)
    assert left_behind() == (crash.record, crash.rows, crash.charges)
    assert kind_of(send(crash.mode, key)) == crash.retry
    assert settle() == crash.verdict
    assert send(crash.mode, key).status_code == 201
    assert left_behind() == ("completed", 1, 1 if crash.mode == "leased" else 0)


def test_page_and_pictures_are_written_from_the_table() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text(), "run: python -m docs.pictures"
    drawn = {IMAGES / crash.file: picture(crash) for crash in CRASHES}
    assert [file.name for file, text in drawn.items() if file.read_text() != text] == [], "run: python -m docs.pictures"
    assert drawn.keys() == set(IMAGES.glob("crash-*.svg"))
