"""Kills the process at a chosen moment, as far as the database can tell."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any, Final, Literal, NoReturn, TypeAlias, get_args
from unittest import mock

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency import signals
from django_idempotency.core.calls import Call
from django_idempotency.core.links import docs_url
from django_idempotency.core.policy import Mode
from django_idempotency.core.refs import Ref
from django_idempotency.flow.completion import Completion
from django_idempotency.models import IdempotencyKey

Point: TypeAlias = Literal["claim", "view", "commit", "answer"]
Act: TypeAlias = Callable[[Call, str], object]  # with the alias of the record's database

_SIGNALS: Final = {
    "claim": (signals.reserved, signals.retried, signals.renewed, signals.taken_over),
    "answer": (signals.completed,),
}


class Crash(BaseException):
    """The process is dead. This is no Exception, because code that handles errors must not handle it."""


class Crashed:
    """What became of the request that was killed."""

    ref: Ref | None = None

    @property
    def record(self) -> IdempotencyKey | None:
        """The record as it is now; None if the crash left none, as in atomic mode."""
        if self.ref is None:
            return None
        return IdempotencyKey.objects.using(self.ref.using).filter(scope=self.ref.scope, id=self.ref.id).first()


@contextmanager
def crash_at(point: Point, *, landed: bool = False) -> Iterator[Crashed]:
    """Kill the process at this point of the next request in the block; the block ends there.

    "claim": the key is claimed, and the view has not begun. "view": the view has done its work, and nothing of it is
    committed. "commit": the COMMIT was sent, and the process dies before the database responds; `landed` says whether
    the database committed. "answer": everything is stored, and the client gets no response.
    """
    if landed and point != "commit":
        raise ValueError(f"`landed` is about a COMMIT, and not about {point!r}.")
    crashed, dead = Crashed(), list[BaseDatabaseWrapper]()

    def die(call: Call, using: str) -> NoReturn:
        crashed.ref = call.ref(using)
        for connection in connections.all(initialized_only=True):
            connection.execute_wrappers.append(_refuse)
            dead.append(connection)
        raise Crash(f"The process was killed here, at {point!r}.")

    try:
        with stop_at(point, die, landed=landed):
            yield crashed
    except Crash:
        return
    finally:
        for connection in dead:
            _revive(connection)
    raise AssertionError(_no_crash(point, crashed))


def _refuse(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
    """A dead process sends nothing. What ends a transaction is what the server does when the connection drops."""
    if sql.startswith(("ROLLBACK", "RELEASE")):
        return execute(sql, *arguments)
    raise Crash("The process is dead, and its code went on to use the database.")


def _revive(connection: BaseDatabaseWrapper) -> None:
    connection.execute_wrappers.remove(_refuse)
    if not connection.in_atomic_block and connection._thread_ident == get_ident():  # type: ignore[attr-defined] # Django's
        connection.close()


def _no_crash(point: str, crashed: Crashed) -> str:
    page = docs_url("reference/testing", "crash-at")
    if crashed.ref is not None:
        return (
            f"The request was killed at {point!r}, and something between the view and the test caught that. Code that "
            f"catches BaseException, or returns in a `finally`, hides the end of a process too. See {page}"
        )
    return (
        f"No request in the block got as far as {point!r}: it was answered earlier, for example by a replay, an error "
        f"response or a permission, or its view is not protected. Send one request, with a new key. See {page}"
    )


@contextmanager
def stop_at(point: Point, act: Act, *, landed: bool = False) -> Iterator[None]:
    """Call `act` when the first request in the block is at this point."""
    if point not in get_args(Point):
        raise ValueError(f"A request can be stopped at {', '.join(get_args(Point))}, and not at {point!r}.")
    reached: list[Call] = []

    def reach(call: Call, using: str, **_: Any) -> None:
        if not reached:
            reached.append(call)
            act(call, using)

    with ExitStack() as stack:
        for signal in _SIGNALS.get(point, ()):
            signal.connect(reach, weak=False)
            stack.callback(signal.disconnect, reach)
        for name, method in _methods(reach).get((point, landed), {}).items():
            stack.enter_context(mock.patch.object(Completion, name, method))
        yield


def _methods(act: Act) -> Mapping[tuple[str, bool], Mapping[str, Callable[..., Any]]]:
    """Return the methods of a completion that stop at a point, by the point and by whether the COMMIT landed."""
    begin, keep, leave, note = Completion.begin_work, Completion.store, Completion.__exit__, Completion._note_commit

    def reach(self: Completion) -> None:
        act(self.attempt.call, self.attempt.using)

    def begin_work(self: Completion) -> None:
        begin(self)
        if self.attempt.call.policy.mode is Mode.ATOMIC:  # its claim is announced after the COMMIT
            reach(self)

    def store(self: Completion, result: object) -> None:
        reach(self)
        keep(self, result)

    def exit_before(self: Completion, *raised: Any) -> bool:
        try:
            if raised[0] is None and self.state is Completion.State.STORING:
                reach(self)
        except Crash as crash:
            leave(self, type(crash), crash, crash.__traceback__)
            raise
        return leave(self, *raised)

    def exit_after(self: Completion, *raised: Any) -> bool:
        done = leave(self, *raised)
        if raised[0] is None and self.state is Completion.State.STORING:  # in a test case, without on_commit
            reach(self)
        return done

    def note_commit(self: Completion) -> None:
        note(self)
        reach(self)  # before the project's on_commit hooks

    return {
        ("claim", False): {"begin_work": begin_work},
        ("view", False): {"store": store},
        ("commit", False): {"__exit__": exit_before},
        ("commit", True): {"__exit__": exit_after, "_note_commit": note_commit},
    }
