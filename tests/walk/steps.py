"""The steps of a history: how they are drawn, and how they are carried out.

A step is plain data and names its subject by a number, so that it means something without the steps before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any, Final

from django.db import connections
from django.test import Client

from django_idempotency import Status, maintenance
from django_idempotency.exceptions import IdempotencyError
from django_idempotency.fields import StatementNow
from django_idempotency.flow.resolve import ask, expire
from django_idempotency.flow.settle import doubtful_step
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import perform
from django_idempotency.reconciliation import NotLanded, StepLanded, resolve, try_again
from django_idempotency.testing import crash_at
from tests.walk.endpoints import TRACED, landed
from tests.walk.world import HERE, Run, Script, Subject, record_of, world

JOBS: Final = ("sweep", "reconcile", "resume", "work", "reap")
ENDS: Final = {  # which stored times lie in the past when this is over
    "lease": ("locked_until", "reconcile_after"),
    "grace": ("locked_until", "reconcile_after", "grace_until"),
    "retention": ("locked_until", "reconcile_after", "grace_until", "expires_at"),
    "expiry": ("expires_at",),
}
FAULTS: Final[dict[str, tuple[str, ...]]] = {
    "charge": ("unreachable", "declined", "lost", "timeout", "timeout"),
    "after timeout": ("504", "404"),
    "with mail": ("yes",),
    "mail": ("unreachable", "declined", "lost", "timeout"),
    "deposit": ("yes", "timeout"),
    "note": ("yes",),
    "end": ("422", "500", "missing", "forbidden", "free", "raise"),
    "deadlock": ("yes",),
    "serializer": ("yes",),
    "commit": ("lost", "landed"),
    "phase commit": ("lost", "landed"),
    "between": ("yes",),
    "kill": ("start", "charged", "write"),
}
NOT_THERE: Final = b"idempotency_operation_not_found"
CRASHES: Final = ("claim", "view", "commit", "commit landed", "answer")


@dataclass(frozen=True)
class Step:
    """One thing that somebody does. `during` holds what others do while a request stands still at a point."""

    kind: str
    subject: int = 0
    what: str = ""
    script: Script = field(default_factory=dict)
    crash: str = ""
    during: dict[str, tuple[Step, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(filter(None, [self.kind, self.what]))


@dataclass(frozen=True)
class Told:
    """A response, and who got it for which request."""

    subject: Subject
    generation: int
    asked_by: tuple[str, str]  # tenant and user
    sent: int
    at: int
    status: int
    headers: dict[str, str]
    body: str
    run: Run | None = None  # None: it asked, and nothing could run
    leads_nowhere: bool = False  # it names an address at which nothing is known
    effect: str = ""  # what a receipt says beside a stored response

    @property
    def json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def code(self) -> str:
        return str(self.json.get("code") or (self.json.get("error", {}) and self._stripe_code()))

    def _stripe_code(self) -> str:
        error = self.json["error"]
        return str(error.get("code", "")) if isinstance(error, dict) else ""

    @property
    def replayed(self) -> bool:
        return "true" in (self.headers.get("Idempotency-Replayed"), self.headers.get("Idempotent-Replayed"))


# Drawing


def draw_subjects(chance: Random, endpoints: Sequence[str]) -> list[Subject]:
    """A key, the same key of the other tenant's user of that name, and the same somewhere else."""
    endpoint = chance.choice(endpoints)
    first = Subject(endpoint, "acme", "ann", f"key-{chance.getrandbits(80):020x}")
    other = first._replace(user="bob") if chance.random() < 0.5 else first._replace(endpoint=chance.choice(endpoints))
    return [first, first._replace(tenant="globex"), other]


def draw_steps(chance: Random, count: int) -> list[Step]:
    steps: list[Step] = []
    while len(steps) < count:
        step = draw_step(chance)
        steps += draw_aftermath(chance, step.subject) if chance.random() < 0.12 else [step]
    return steps


def draw_aftermath(chance: Random, subject: int, depth: int = 0) -> list[Step]:
    """What follows the loss of an attempt, in its usual order: few random orders get that far."""
    lease, who = Step("ends", subject, "lease"), chance.choice(("client", "jobs", "jobs", "reaper")[: 4 - depth])
    if who == "client":
        return [lease, Step("request", subject, "", draw_script(chance))]
    if who == "reaper":
        return [Step("ends", subject, "retention"), Step("job", subject, "reap")]
    ends = (Step("job", subject, "reconcile"), Step("operator", subject, "settle"), Step("webhook", subject))
    return [lease, Step("job", subject, "sweep"), Step("ends", subject, "grace"), chance.choice(ends)]


def draw_step(chance: Random, depth: int = 0) -> Step:
    subject = chance.choice((0, 0, 0, 0, 1, 2))
    kind = chance.choices(
        ("request", "changed", "ends", "job", "message", "webhook", "operator", "poll"),
        (30, 4, 22, 26, 5, 4, 7, 2),
    )[0]
    match kind:
        case "request" | "changed":
            during = {}
            if not depth and chance.random() < 0.25:
                point = chance.choice(("start", "charged", "commit", "commit"))
                usual = chance.random() < 0.4
                others = (
                    draw_aftermath(chance, subject, 1)
                    if usual
                    else [draw_step(chance, 1) for _ in range(chance.randint(1, 4))]
                )
                during = {point: tuple(others)}
            script = draw_script(chance)
            if "commit" in during:
                script["commit"] = chance.choice(FAULTS["commit"])
            return Step(kind, subject, "", script, draw_crash(chance), during)
        case "ends":
            ends = ("lease", "grace", "lease", "grace", "retention", "expiry")
            return Step(kind, subject, chance.choice(ends[: 6 - 2 * depth]))  # no request stands still for a day
        case "job":
            mood = chance.choice(("", "", "", "inconclusive", "raises"))
            job = chance.choices(JOBS, (3, 5, 3, 3, 2))[0]
            return Step(kind, subject, f"{job} {mood}".strip(), draw_script(chance), draw_crash(chance))
        case "message":
            return Step(kind, subject, "", draw_script(chance), draw_crash(chance))
        case "operator":
            return Step(kind, subject, chance.choice(("settle", "settle", "try again", "ask", "expire")))
    return Step(kind, subject)


def draw_script(chance: Random) -> Script:
    if chance.random() < 0.35:
        return {}
    chosen = chance.sample(sorted(FAULTS), chance.choice((1, 1, 2, 3)))
    script = {name: chance.choice(FAULTS[name]) for name in chosen}
    if "after timeout" in script:
        script["charge"] = "timeout"
    if "mail" in script:
        script["with mail"] = "yes"
    if "serializer" in script:
        script["deadlock"] = "yes"
    return script


def draw_crash(chance: Random) -> str:
    return chance.choice(CRASHES) if chance.random() < 0.12 else ""


# Carrying out


class Actor:
    """Carries out steps, and hands every response to `tell`."""

    def __init__(self, subjects: list[Subject], tell: Callable[[Told], None]) -> None:
        self.subjects = subjects
        self.tell = tell
        self.client = Client(raise_request_exception=False)

    def act(self, step: Step, meanwhile: Callable[[Step], None]) -> str:
        """Do it, and return in a word or two what came of it."""
        subject = self.subjects[step.subject]
        return str(getattr(self, f"do_{step.kind}")(step, subject, meanwhile))

    def do_request(self, step: Step, subject: Subject, meanwhile: Callable[[Step], None]) -> str:
        return self.send(step, subject, meanwhile, {"amount": 5})

    def do_changed(self, step: Step, subject: Subject, meanwhile: Callable[[Step], None]) -> str:
        """The app was updated between the first request and this one, which has one more field."""
        return self.send(step, subject, meanwhile, {"amount": 5, "currency": "EUR"})

    def send(self, step: Step, subject: Subject, meanwhile: Callable[[Step], None], body: object) -> str:
        def others(point: str) -> None:
            for each in step.during.get(point, ()):
                meanwhile(each)

        run = Run(dict(step.script), world().now(), others)
        address, headers = f"/{subject.endpoint}", self.headers(subject) | {"Idempotency-Key": subject.key}
        post: Callable[[], Any] = lambda: self.client.post(address, body, "application/json", headers=headers)  # noqa: E731
        response = under_script(run, step.crash, post)
        if response is None:
            return "killed"
        told = self.told(subject, response, run)
        self.tell(told)
        return f"{told.status} {told.code}".strip() + (" replayed" if told.replayed else "")

    def told(self, subject: Subject, response: Any, run: Run | None) -> Told:
        key = world().key(subject)
        return Told(
            subject,
            run.generation if run is not None and run.subject is not None else key.generation,
            (subject.tenant, subject.user),
            0 if run is None else run.sent,
            world().now(),
            response.status_code,
            dict(response.items()),
            response.content.decode(),
            run if run is not None and run.subject is not None else None,
            self.leads_nowhere(subject, response),
        )

    def leads_nowhere(self, subject: Subject, response: Any) -> bool:
        """Ask at the address that a problem names, as a client would."""
        with suppress(ValueError):
            found = json.loads(response.content)
            if isinstance(found, dict) and "operation_ref" in found:
                address = f"/idempotency/operations/{found['operation_ref']}/"
                return NOT_THERE in self.client.get(address, headers=self.headers(subject)).content
        return False

    def headers(self, subject: Subject) -> dict[str, str]:
        return {"X-User": subject.user, "X-Tenant": subject.tenant}

    def receipt(self, subject: Subject) -> Told:
        """What the owner of a key is told about it: a stored response comes inside JSON."""
        headers = self.headers(subject) | {"Idempotency-Key": subject.key}
        told = self.told(
            subject, self.client.get(f"/idempotency/keys/?path=/{subject.endpoint}", headers=headers), None
        )
        stored = told.json.get("response")
        if stored is None:
            return told
        marked = {"Idempotency-Replayed": "true"}
        return replace(told, status=stored["status"], headers=marked, body=stored["body"], effect=told.json["effect"])

    def do_poll(self, step: Step, subject: Subject, meanwhile: object) -> str:
        told = self.receipt(subject)
        self.tell(told)
        return f"{told.status} {told.code}"

    def do_ends(self, step: Step, subject: Subject, meanwhile: object) -> str:
        record, key = record_of(subject), world().key(subject)
        if record is None:
            return "no record"
        if step.what in ("grace", "retention") and key.standing:
            return "too early: an attempt has not sent everything"
        nested = IdempotencyKey.objects.filter(operation="walk.mail", key__in=world().mails)
        for each in (record, *nested):
            for column in ENDS[step.what]:
                if each.pk != record.pk and column == "expires_at":
                    continue
                rows = IdempotencyKey.objects.filter(scope=each.scope, pk=each.pk, **{f"{column}__isnull": False})
                moved = rows.update(**{column: StatementNow() - timedelta(seconds=1)})
                ended = each.status in (*Status.ENDED, Status.FAILED_RETRYABLE)
                if column == "expires_at" and moved and ended:
                    key.over = True
        return ""

    def do_job(self, step: Step, subject: Subject, meanwhile: object) -> str:
        job, _, world().mood = step.what.partition(" ")
        run = Run(dict(step.script), world().now())
        counts = under_script(run, step.crash, getattr(maintenance, job))
        return "killed" if counts is None else ", ".join(f"{name} {number}" for name, number in counts.items())

    def do_message(self, step: Step, subject: Subject, meanwhile: object) -> str:
        """A message arrives, for the first time or once more."""
        messages = world().messages
        if not messages:
            return "no message"
        run, message = Run(dict(step.script), world().now()), messages[step.subject % len(messages)]
        with suppress(IdempotencyError):
            return str(under_script(run, step.crash, lambda: perform(message)))
        return "failed"

    def do_webhook(self, step: Step, subject: Subject, meanwhile: object) -> str:
        """The provider says what it knows of a key that it was sent."""
        record = record_of(subject)
        finding = None if record is None else self.finding(record, subject)
        if record is None or finding is None:
            return "nothing to say"
        doubtful = doubtful_step(record)
        reference = record.derive("charge") if doubtful is None else doubtful.key
        return str(resolve(reference, finding, by="provider"))

    def do_operator(self, step: Step, subject: Subject, meanwhile: object) -> str:
        record = record_of(subject)
        if record is None:
            return "no record"
        note: Any = {"by": "operator", "reason": "looked it up"}
        match step.what:
            case "try again":
                return str(try_again(record.pk, **note))
            case "ask":
                world().mood = ""
                return str(ask(record.pk, **note))
            case "expire":
                outcome = expire(record.pk, **note)
                world().key(subject).over |= str(outcome) == "expired"
                return str(outcome)
        finding = self.finding(record, subject)
        if finding is None or world().key(subject).standing:
            return "too early to say"
        return str(resolve(record.pk, finding, operator=True, **note))

    def finding(self, record: IdempotencyKey, subject: Subject) -> Any:
        """What the provider's list shows: about the step in doubt, or about the whole; None if it is about the past."""
        doubtful = doubtful_step(record)
        if doubtful is not None:
            known = world().ledger.get(doubtful.key)
            return NotLanded() if known is None else StepLanded(known)
        now = world().key(subject).generation
        found = [effect.generation for effect in world().effects if effect.subject == subject and effect.what in TRACED]
        if not found:
            return NotLanded()
        if now not in found or record.run_name or record.operation == "walk.atomic":
            return None
        return landed(subject)


@contextmanager
def as_run(run: Run) -> Iterator[None]:
    before = getattr(HERE, "run", None)
    HERE.run = run
    try:
        yield
    finally:
        HERE.run = before
        connections["default"].__dict__.pop("_commit", None)  # a COMMIT that was to be lost, and never came
        if run.session_lost:
            connections["default"].close()  # as a server does after a request


def under_script(run: Run, crash: str, work: Callable[[], Any]) -> Any:
    """Work with what goes wrong in it; None if the process was killed."""
    with as_run(run):
        if not crash:
            return work()
        done: list[Any] = []
        point: Any = crash.removesuffix(" landed")
        with suppress(AssertionError), crash_at(point, landed=crash.endswith("landed")):
            done.append(work())
        run.excused = True
        return done[0] if done else None
