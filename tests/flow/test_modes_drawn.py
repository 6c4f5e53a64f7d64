"""Each mode of docs/start/choose-a-mode.md: what real requests and workers do, in their order, is what is drawn."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency import Reply, Status, json_reply
from django_idempotency.core.progress import Progress, StepState
from django_idempotency.core.transitions import TRANSITIONS
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.operations import Op, operation, perform
from django_idempotency.store import attempts, claims, operations, records
from django_idempotency.testing import lease_over
from docs.pictures.drawing import IMAGES, Note, Step
from docs.pictures.modes import DRAWINGS, PAGE, Drawing, page, picture
from testproject.payments.models import LedgerEntry
from tests.flow.test_crashes_drawn import die, in_another_process, send

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True), pytest.mark.vendor]

LABELS: Final = {
    claims.CLAIM: "claim",
    claims.LOOK_ALONE: "look up",
    records.FIND: "look up",
    operations.READ: "look up",
    operations.BEGIN: "arguments",
    attempts.DEFER: "arguments",
    attempts.PICK_UP: "pick up",
    claims.TAKE_OVER: "take over",
    claims.INSERT_FINISHED: "response",
    attempts.COMPLETE: "response",
    operations.MARK: "step",
}
TARGETS: Final = {row.cite: row.target for row in TRANSITIONS}
TABLE: Final = LedgerEntry._meta.db_table
# The package's statements quote no table, Django's do.
WRITES: Final = ("INSERT INTO idempotency_key", "UPDATE idempotency_key", *(f"INSERT INTO {q}{TABLE}" for q in '"`'))
STATES: Final = {status.value for status in Status}


class Journal(logging.Handler):
    """What has happened, in a file: a process that is killed has written down what it did."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.actor, self.uncommitted = file, "view", ""
        file.touch()

    def add(self, *item: str) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(item) + "\n")

    def story(self) -> list[Step | Note]:
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [Step(*line) if len(line) == 3 else Note(*line) for line in lines]

    def emit(self, record: logging.LogRecord) -> None:
        """Receive what Django logs of a transaction."""
        word = str(getattr(record, "sql", "")).partition(" ")[0]
        if word in ("BEGIN", "COMMIT", "ROLLBACK"):
            self.add(self.actor, "database", word)
            if word == "ROLLBACK":
                self.uncommitted = ""
            self._show_state()

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Receive a statement, and keep those that read or change a record or the project's rows."""
        result = execute(sql, params, many, context)
        statement = next((each for each in LABELS if sql.endswith(each.text(connection.vendor))), None)
        if statement is None and sql.startswith(WRITES):
            self.add(self.actor, "database", "your rows" if TABLE in sql else sql)
        elif statement is not None and context["cursor"].rowcount:
            self.add(self.actor, "database", self._label(LABELS[statement], params))
            self.uncommitted = next((TARGETS[cite].value for cite in statement.cites), self.uncommitted)
        if not connection.in_atomic_block:
            self._show_state()
        return result

    def _label(self, label: str, params: Any) -> str:
        if label == "step":
            done = Progress.load(params["progress"]).steps[-1].state is StepState.DONE
            return "step done" if done else "step begun"
        return "result" if label == "response" and self.actor == "once" else label

    def _show_state(self) -> None:
        """Add the state that others see from now on, if it is another one."""
        known = [item.label for item in self.story() if item.label in STATES]
        if self.uncommitted and self.uncommitted not in known[-1:]:
            self.add("database", self.uncommitted)
        self.uncommitted = ""


class World:
    journal: Journal
    killed_at_the_call = False
    messages: list[str] = []


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, settings: Any, registrations: None) -> None:
    World.journal, World.messages = Journal(tmp_path / "journal"), []

    def notify(record: str) -> None:
        World.journal.add("view", "worker", "message")
        World.messages.append(record)

    settings.IDEMPOTENCY = {"ENQUEUE": notify}
    operation("modes.work")(work)
    operation("modes.ride")(ride)


@contextmanager
def recording() -> Iterator[Journal]:
    journal, log = World.journal, logging.getLogger("django.db.backends")
    connection.ensure_connection()
    before = log.level, connection.force_debug_cursor
    log.addHandler(journal)
    log.setLevel(logging.DEBUG)
    connection.force_debug_cursor = True
    try:
        with connection.execute_wrapper(journal):
            yield journal
    finally:
        log.removeHandler(journal)
        log.setLevel(before[0])
        connection.force_debug_cursor = before[1]


def charge(_key: str | None) -> str:
    actor = World.journal.actor
    World.journal.add(actor, "provider", "charge")
    if World.killed_at_the_call:
        World.journal.add(actor, "killed")
        die()
    World.journal.add("provider", actor, "done")
    return "ch_1"


def book(*_arguments: object) -> int:
    return LedgerEntry.objects.create(reference="drawn", account="cash", amount=5).pk


def book_and_respond() -> HttpResponse:
    return JsonResponse({"booked": book()}, status=201)


def ride(op: Op) -> Reply:
    op.phase("booked", book)
    return json_reply(201, {"charge": op.effect("charged", charge, in_doubt="repeat")})


def work(op: Op) -> Reply:
    op.phase("booked", book)
    return json_reply(201, {})


@idempotent(operation="modes.atomic", mode="atomic", share_anonymous=True)
def atomic(request: HttpRequest) -> HttpResponse:
    World.journal.add("view", "your view")
    return book_and_respond()


@idempotent(operation="modes.leased", mode="leased", transaction="late", share_anonymous=True)
def leased(request: Any) -> HttpResponse:
    World.journal.add("view", "your view")
    charge(request.idempotency.derive("charge"))
    answer: HttpResponse = request.idempotency.finish(book_and_respond)
    return answer


@idempotent(operation="modes.ride", mode="leased", transaction="late", on_lost_lease="resume", share_anonymous=True)
def resumed(request: Any) -> HttpResponse:
    answer: HttpResponse = request.idempotency.run(ride)
    return answer


@idempotent(operation="modes.deferred", mode="leased", transaction="late", share_anonymous=True)
def deferred(request: Any) -> HttpResponse:
    World.journal.add("view", "your view")
    answer: HttpResponse = request.idempotency.defer(work)
    return answer


urlpatterns = [
    path("atomic", atomic),
    path("leased", leased),
    path("operation", resumed),
    path("deferred", deferred),
]


def request(mode: str, key: str) -> None:
    again = any(item.label == "request" for item in World.journal.story())
    World.journal.add("client", "view", "retry" if again else "request")
    answer = send(mode, key)
    replayed = ", replay" if "Idempotency-Replayed" in answer.headers else ""
    World.journal.add("view", "client", f"{answer.status_code}{replayed}")


def request_and_retry(mode: str, key: str) -> None:
    request(mode, key)
    request(mode, key)


def killed_and_resumed(mode: str, key: str) -> None:
    World.killed_at_the_call = True
    in_another_process(partial(request, mode, key))
    World.killed_at_the_call = False
    World.journal.add("database", "lease expires")
    lease_over(IdempotencyKey.objects.get(scope__contains="modes."))
    request(mode, key)


def performed_by_a_worker(mode: str, key: str) -> None:
    request(mode, key)
    World.journal.actor = "worker"
    perform(World.messages.pop())
    World.journal.actor = "view"
    request(mode, key)


def called_twice(mode: str, key: str) -> None:
    def run(claim: Claim) -> Any:
        World.journal.add("once", "your function")
        charge(claim.derive("charge"))
        return claim.finish(book)

    World.journal.actor = "once"
    for call, result in (("call", "result"), ("call again", "same result")):
        World.journal.add("caller", "once", call)
        once(scope="modes.once", key=key, run=run)
        World.journal.add("once", "caller", result)


PLAYS: Final[dict[str, Callable[[str, str], None]]] = {
    "atomic": request_and_retry,
    "leased": request_and_retry,
    "operation": killed_and_resumed,
    "deferred": performed_by_a_worker,
    "once": called_twice,
}


def as_drawn(story: list[Step | Note]) -> list[Step | Note]:
    """SQLite reads before it inserts, and a retry reads the record and its operation: each is one step."""
    return [item for item, following in pairwise([*story, Note("", "")]) if not is_part_of(item, following)]


def is_part_of(item: Step | Note, following: Step | Note) -> bool:
    return item.label == "look up" and following.label in ("claim", "look up")


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.name)
def test_what_happens_is_what_is_drawn(drawing: Drawing) -> None:
    with recording() as journal:
        PLAYS[drawing.name](drawing.name, uuid4().hex)
    assert as_drawn(journal.story()) == list(drawing.story)


def test_section_and_pictures_are_written_from_the_table() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text(), "run: python -m docs.pictures"
    drawn = {IMAGES / drawing.file: picture(drawing) for drawing in DRAWINGS}
    assert [file.name for file, text in drawn.items() if file.read_text() != text] == [], "run: python -m docs.pictures"
    assert drawn.keys() == set(IMAGES.glob("mode-*.svg"))
