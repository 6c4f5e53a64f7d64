"""What really happened: a provider whose ledger nobody rolls back, the rows that were committed, and who was told what.

Everything has a moment, which is a number that only grows. An effect also knows the moment at which the request behind
it was sent: what a client was told before that says nothing about it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

from django.contrib.auth.models import User
from django.db import OperationalError, connections

from django_idempotency.core.calls import make_record_id
from django_idempotency.http.requests import scope_of
from django_idempotency.models import IdempotencyKey
from testproject.payments.models import LedgerEntry


class Refused(Exception):
    """The provider did not do it, and says so."""


class Unreachable(Exception):
    """The provider was never called."""


class Lost(Exception):
    """The provider's response did not come."""


class Deadlock(OperationalError):
    """The server chose this transaction as a victim."""

    sqlstate = "40001"


class Subject(NamedTuple):
    """One key of one user of one tenant at one endpoint: at most one effect of it may happen in a generation."""

    endpoint: str
    tenant: str
    user: str
    key: str

    def __str__(self) -> str:
        return f"{self.user} of {self.tenant} at /{self.endpoint} with {self.key}"


class Effect(NamedTuple):
    """Something that cannot be taken back: a request that took effect at the provider, or a committed row."""

    subject: Subject
    generation: int
    what: str
    sent: int  # the moment of the request behind it
    at: int


@dataclass
class Key:
    """What the walk knows of one subject."""

    generation: int = 1
    over: bool = False  # its retention has ended, so that the next run belongs to another generation
    sent: int = 0  # the moment of the last request whose view ran
    standing: int = 0  # attempts that stand still before they have sent everything

    def claim(self, sent: int) -> None:
        """A request claims the key. What it claims after the retention is another generation."""
        if self.over:
            self.generation, self.over = self.generation + 1, False
        self.sent = sent


Script = dict[str, str]
Meanwhile = Callable[[str], None]


@dataclass
class Run:
    """One run of a view or of a worker, and what goes wrong in it. Each thing goes wrong once."""

    script: Script
    sent: int
    meanwhile: Meanwhile = lambda point: None  # what others do while this run stands still
    subject: Subject | None = None
    generation: int = 0
    excused: bool = False  # the script raised something, so an error page is the project's own
    writes: int = 0
    session_lost: bool = False

    def pops(self, name: str) -> str:
        return self.script.pop(name, "")

    def enter(self, subject: Subject, *, repeats: bool = False) -> None:
        """The view begins, or a worker goes on with what a view began (`repeats`)."""
        key = WORLD[0].key(subject)
        if repeats:
            self.sent = key.sent
        else:
            key.claim(self.sent)
        self.subject, self.generation = subject, key.generation

    def pause(self, point: str) -> None:
        """Stand still here, while others do what the history says."""
        assert self.subject is not None
        key = WORLD[0].key(self.subject)
        key.standing += 1
        try:
            self.meanwhile(point)
        finally:
            key.standing -= 1


class World:
    """All that a history leaves behind outside the tables of the package."""

    def __init__(self) -> None:
        self.moments = count(1)
        self.effects: list[Effect] = []
        self.keys: dict[Subject, Key] = {}
        self.ledger: dict[str, str] = {}  # downstream key -> the provider's name for what it did
        self.arrived: Counter[tuple[Subject, int, str]] = Counter()
        self.mails: set[str] = set()
        self.messages: list[str] = []
        self.mood = ""  # of the reconcilers: "" tells the truth
        self.rows: set[int] = set()

    def now(self) -> int:
        return next(self.moments)

    def key(self, subject: Subject) -> Key:
        return self.keys.setdefault(subject, Key())

    def provide(self, what: str, key: str, run: Run) -> str:
        """Call the provider: it does the work once for each downstream key."""
        assert run.subject is not None
        how = run.pops(what)
        if how == "unreachable":
            run.excused = True
            raise Unreachable
        if how == "declined":
            run.excused = True
            raise Refused
        if how != "lost":
            self.effects.append(Effect(run.subject, run.generation, what, run.sent, self.now()))
            self.arrived[run.subject, run.generation, what] += 1
            self.ledger.setdefault(key, f"{what} {len(self.ledger) + 1}")
        if how in ("lost", "timeout"):
            run.excused = True
            raise Lost
        return self.ledger[key]

    def look(self) -> None:
        """Note the rows that have been committed since the last look."""
        for row in LedgerEntry.objects.exclude(pk__in=self.rows).order_by("pk"):
            subject, _, generation = row.reference.rpartition("#")
            self.rows.add(row.pk)
            effect = Effect(Subject(*subject.split("/")), int(generation), row.account, row.amount, self.now())
            self.effects.append(effect)


USERS: Final[dict[str, User]] = {}
WORLD: Final[list[World]] = [World()]
HERE: Final = threading.local()


def world() -> World:
    return WORLD[0]


def running() -> Run:
    """The run of this thread."""
    found: Run = HERE.run
    return found


def book(what: str, run: Run | None = None, subject: Subject | None = None) -> int:
    """Write a row; the run's own, or one for a verdict about the subject."""
    if run is not None:
        assert run.subject is not None
        subject, generation, sent = run.subject, run.generation, run.sent
    else:
        assert subject is not None
        key = world().key(subject)
        generation, sent = key.generation, key.sent
    return LedgerEntry.objects.create(reference=f"{'/'.join(subject)}#{generation}", account=what, amount=sent).pk


def scope_text(subject: Subject) -> str:
    return scope_of(f"user:{USERS[subject.user].pk}", f"walk.{subject.endpoint}", subject.tenant)


def record_of(subject: Subject) -> IdempotencyKey | None:
    scope = scope_text(subject)
    found = IdempotencyKey.objects.with_time().filter(scope=scope, pk=make_record_id(scope, subject.key))
    return found.first()


def lose_commit(run: Run, *, landed: bool) -> None:
    """Let the next COMMIT of this connection end without a response, and let others act before the view goes on."""
    wrapper: Any = connections["default"]
    commit = wrapper._commit

    def interrupted() -> None:
        del wrapper._commit
        if landed:
            commit()
        else:
            wrapper._rollback()
        run.meanwhile("commit")
        raise OperationalError("The connection was lost during the COMMIT.")

    wrapper._commit = interrupted
