"""Nine kinds of endpoints, what workers do for them, and reconcilers that tell the truth unless they are moody."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path

from django_idempotency import STRIPE, Reply, json_reply
from django_idempotency.core.calls import Call
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.operations import Op, operation
from django_idempotency.reconciliation import Inconclusive, Landed, NotLanded, StepLanded, Verdict, reconciler
from tests.kit.faults import Trouble, end_session
from tests.walk.world import (
    USERS,
    Deadlock,
    Lost,
    Refused,
    Run,
    Subject,
    Unreachable,
    book,
    lose_commit,
    running,
    scope_text,
    world,
)

TRACED: Final = ("charge", "mail", "deposit")  # what the provider keeps a list of
MAY_REPEAT: Final = {("restart", "charge"), ("release", "charge"), ("operation", "charge"), ("deferred", "charge")}


class Caller:
    """The middleware that knows who asks."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.user = USERS[request.headers["X-User"]]
        return self.get_response(request)


def tenant_of(request: HttpRequest) -> str:
    return request.headers["X-Tenant"]


# What the views share


def begin(request: HttpRequest, endpoint: str) -> Run:
    run = running()
    run.enter(Subject(endpoint, tenant_of(request), request.headers["X-User"], request.headers["Idempotency-Key"]))
    return run


def stand(run: Run, point: str) -> None:
    """Let others act, or lose the session, at this point of the view."""
    if not connections["default"].in_atomic_block:
        run.pause(point)
    if run.script.get("kill") == point:
        run.pops("kill")
        run.excused = point != "write"
        if connections["default"].vendor != "sqlite":
            end_session(Trouble.CUT, connections["default"])
            run.session_lost = True


def charge(run: Run, key: str) -> str:
    """Call the provider in an operation's step: what it did not do is no effect."""
    try:
        return world().provide("charge", key, run)
    except Unreachable:
        raise NotExecuted from None


def send_mail(run: Run, key: str) -> None:
    """A nested key: the mail has its own record."""

    def work(claim: Claim) -> None:
        try:
            world().provide("mail", claim.derive("mail"), run)
        except (Unreachable, Refused):
            raise NotExecuted("The mail server did not take it.") from None

    world().mails.add(key)
    once(scope="walk.mail", key=key, run=work, operation="walk.mail", payload="a mail")


def end_early(run: Run) -> HttpResponse | None:
    """What views do instead of finishing."""
    end = run.pops("end")
    if not end:
        return None
    if end.isdigit():
        return JsonResponse({"error": end}, status=int(end))
    run.excused = True
    raise {"forbidden": PermissionDenied, "missing": Http404, "free": NotExecuted}.get(end, ValueError)


def written(run: Run, what: str = "booked") -> HttpResponse:
    """Make the writes and the response, as `finish` wants them."""
    run.writes += 1
    if run.writes > 1 and run.script.get("serializer"):
        raise AssertionError("You cannot call .save() after accessing serializer.data.")
    row = book(what, run)
    stand(run, "write")
    if run.pops("deadlock"):
        raise Deadlock
    commit = run.pops("commit")
    if commit:
        lose_commit(run, landed=commit == "landed")
    return JsonResponse(body_of(run.subject, row, run.sent), status=201)


def body_of(subject: Subject | None, row: int, moment: int) -> dict[str, object]:
    """Return what a response says. The moment tells responses apart: SQLite gives a row's number away again."""
    assert subject is not None
    return {"tenant": subject.tenant, "user": subject.user, "row": row, "moment": moment}


def pay(request: Any, endpoint: str) -> HttpResponse:
    """Charge, tell by mail, book: where nothing is said about a transaction, none is open until the last line."""
    run = begin(request, endpoint)
    late = endpoint != "whole"
    run.excused |= not late and "deadlock" in run.script  # the error is the view's own
    stand(run, "start")
    try:
        world().provide("charge", request.idempotency.derive("charge"), run)
    except Refused:
        return JsonResponse({"error": "declined"}, status=402)
    except Lost:
        after = run.pops("after timeout")
        if after == "504":
            return JsonResponse({"error": "the provider does not answer"}, status=504)
        raise (Http404 if after == "404" else Lost) from None
    if run.script.get("with mail") and late:
        send_mail(run, request.idempotency.derive("mail"))
    stand(run, "charged")
    response = end_early(run)
    if response is not None:
        return response
    write = partial(written, run)
    answer: HttpResponse = request.idempotency.finish(write) if late else write()
    return answer


def pay_in_database(request: Any) -> HttpResponse:
    """Atomic mode: every effect is a row."""
    run = begin(request, "atomic")
    stand(run, "start")
    if run.script.get("end", "").isdigit():  # what a view returns is committed, and so are the rows before it
        return end_early(run) or HttpResponse()
    response = written(run)
    return end_early(run) or response


def ride_request(request: Any) -> HttpResponse:
    run = begin(request, "operation")
    stand(run, "start")
    answer: HttpResponse = request.idempotency.run(ride, subject=list(run.subject or ()))
    return answer


def hand_over(request: Any) -> HttpResponse:
    """Perhaps charge a deposit, perhaps write down what was asked for, and leave the rest to a worker."""
    run = begin(request, "deferred")
    stand(run, "start")
    if run.script.get("deposit"):
        try:
            world().provide("deposit", request.idempotency.derive("deposit"), run)
        except (Refused, Unreachable):
            return JsonResponse({"error": "declined"}, status=402)
    stand(run, "charged")

    def note() -> None:
        written(run, "asked")

    write = note if run.script.get("note") else None
    answer: HttpResponse = request.idempotency.defer(ride, write=write, subject=list(run.subject or ()))
    return answer


def ride(op: Op, subject: list[str]) -> Reply:
    """Reserve, charge, tell by mail, book: resumed after the last step."""
    run = running()
    if run.subject != Subject(*subject):  # a worker
        run.enter(Subject(*subject), repeats=True)

    def reserve() -> int:
        row = book("reserved", run)
        commit = run.pops("phase commit")
        if commit:
            lose_commit(run, landed=commit == "landed")
        return row

    op.phase("reserved", reserve)
    if run.pops("between"):
        run.excused = True
        raise ValueError("the process failed between two steps")
    op.effect("charge", partial(charge, run), in_doubt="repeat")
    op.effect("mail", partial(step_mail, run), in_doubt="reconcile")
    row = op.phase("booked", partial(book, "booked", run))
    return json_reply(201, body_of(run.subject, row, run.sent))


def step_mail(run: Run, key: str) -> str:
    try:
        return world().provide("mail", key, run)
    except (Unreachable, Refused):
        raise NotExecuted from None


# The endpoints

DAY, NOW = timedelta(hours=24), timedelta(0)
LATE: Final = {"mode": "leased", "transaction": "late", "attempts": 2, "attempts_span": NOW}
PROOF: Final = {"not_executed": [Unreachable]}
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "atomic": {"mode": "atomic", "attempts_span": NOW, "expiry": "soft", "after_expiry": "gone"},
    "whole": {"mode": "leased", "attempts": 2, "attempts_span": NOW, **PROOF},
    "late": {**LATE, **PROOF, "expiry": "soft", "after_expiry": "gone"},
    "restart": {**LATE, **PROOF, "on_lost_lease": "restart", "attempts": 3},
    "stripe": {**LATE, "profile": STRIPE, "on_error": "store", "streaming": "buffer"},
    "filter": {**LATE, "store": {402}},
    "operation": {**LATE, "on_lost_lease": "resume", "attempts": 3},
    "deferred": LATE,
    "release": {**LATE, "on_error": "release"},
}
VIEWS: Final[dict[str, Callable[..., HttpResponse]]] = {
    "atomic": pay_in_database,
    "operation": ride_request,
    "deferred": hand_over,
}


def protected(endpoint: str) -> Any:
    view = VIEWS.get(endpoint) or partial(pay, endpoint=endpoint)

    def plain(request: HttpRequest) -> HttpResponse:
        return view(request)

    plain.__name__ = endpoint
    return idempotent(operation=f"walk.{endpoint}", receipts=True, **POLICIES[endpoint])(plain)


urlpatterns = [
    *(path(endpoint, protected(endpoint), name=endpoint) for endpoint in POLICIES),
    path("idempotency/", include("django_idempotency.urls")),
]


# What is known afterwards


def subject_of(scope: str) -> Subject | None:
    """Return the subject that this scope belongs to; None if it is the scope of something else."""
    return next((each for each in world().keys if scope_text(each) == scope), None)


def note_claim(sender: object, call: Call, **_: object) -> None:
    """Receive the signals of a claim: the view may never begin."""
    subject = subject_of(call.scope)
    if subject is not None:
        world().key(subject).claim(running().sent)


def moody() -> Verdict | None:
    if world().mood == "raises":
        raise ConnectionError("the provider does not answer")
    return Inconclusive() if world().mood == "inconclusive" else None


def landed(subject: Subject) -> Landed:
    """The effect is there: book it, and give the response that the view would have given."""

    def write() -> Reply:
        row = book("booked", subject=subject)
        return json_reply(201, body_of(subject, row, world().now()))

    return Landed(write=write)


def ask(record: IdempotencyKey) -> Verdict:
    """Look for the record's downstream keys at the provider."""
    found = any(record.derive(step) in world().ledger for step in TRACED)
    subject = subject_of(record.scope)
    return moody() or (landed(subject) if found and subject is not None else NotLanded())


def ask_about_step(record: IdempotencyKey, key: str) -> Verdict:
    known = world().ledger.get(key)
    return moody() or (StepLanded(known) if known is not None else NotLanded())


def ask_about_mail(record: IdempotencyKey) -> Verdict:
    sent = record.derive("mail") in world().ledger
    return moody() or (Landed(json_reply(200, None)) if sent else NotLanded())


def register() -> None:
    for endpoint in POLICIES:
        reconciler(f"walk.{endpoint}")(ask)
    operation("walk.ride")(ride)
    for step in ("charge", "mail"):
        reconciler("walk.ride", step=step)(ask_about_step)
    reconciler("walk.mail")(ask_about_mail)
