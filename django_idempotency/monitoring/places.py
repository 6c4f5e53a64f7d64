"""Connections of their own, to one host or to several: what a proof is tried over."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Barrier
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency.conf import conf
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Record
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.schemas import copy_connection
from django_idempotency.store import claims, limits, records, threads
from django_idempotency.store.dialects import dialect_of
from django_idempotency.store.limits import name_error

Given = ParamSpec("Given")
T = TypeVar("T")

NAMESPACE: Final = "doctor"  # of the records that a proof makes

STATEMENT_SECONDS: Final = 10.0  # that one statement or transaction of a proof may take


class Broken(Exception):
    """What does not hold, and where it was seen."""


Told: TypeAlias = tuple[UUID, Record | Broken | None]  # of a claim: its token, and what it was told


@dataclass(frozen=True, slots=True)
class Place:
    """One connection to one host, under an alias of its own."""

    alias: str
    host: str
    template: BaseDatabaseWrapper

    @contextmanager
    def connected(self) -> Iterator["Place"]:
        """Have the alias in this thread. The connection is opened by the first statement."""
        connections[self.alias] = copy_connection(self.template, self.alias)
        try:
            yield self
        finally:
            connections[self.alias].close()
            del connections[self.alias]

    def do(self, call: Callable[Given, T], *args: Given.args, **kwargs: Given.kwargs) -> T:
        """Make the call, within a limit; an error of the database says where it occurred."""
        try:
            with limits.limited(self.alias, STATEMENT_SECONDS):
                return call(*args, **kwargs)
        except StoreUnavailable as error:
            raise Broken(f"{self.host}: {name_error(error)}") from error

    def find(self, call: Call) -> Record | None:
        return self.do(records.find, call.ref(self.alias))

    def claim(self, call: Call, token: UUID) -> Record | None:
        """Claim as a request does. None if this token won; else the record that was there first."""

        def insert(seconds: float) -> Record | None:
            return claims.insert_claim(call, token, self.alias, seconds, namespace=NAMESPACE)

        try:
            record = limits.repeated(insert, self.alias, conf.CLAIM_LIMIT.total_seconds())
        except StoreUnavailable as error:
            raise Broken(f"{self.host}: {name_error(error)}") from error
        return None if record is not None and record.token == token else record

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end, within the same limit."""
        try:
            with limits.limited(self.alias, STATEMENT_SECONDS), transaction.atomic(using=self.alias):
                yield
        except StoreUnavailable as error:
            raise Broken(f"{self.host}: {name_error(error)}") from error

    def overlapping_transaction(self) -> AbstractContextManager[Any]:
        """A transaction that stays open while others write. A file has one writer: there is none."""
        return self.transaction() if dialect_of(self.alias).has_server else nullcontext()


def list_places(using: str, hosts: Sequence[str]) -> list[Place]:
    """Return two connections as the settings say, and one to each host. ValueError for what names no host."""
    own = connections[using]
    if hosts and not dialect_of(using).has_server:
        raise ValueError("SQLite has no hosts.")
    here = str(own.settings_dict["HOST"] or using)
    settings = [(here, {}), (here, {}), *((host, parse_host(host)) for host in hosts)]
    return [Place(f"{using}-{number}", host, _copy(own, changes)) for number, (host, changes) in enumerate(settings)]


def parse_host(given: str) -> dict[str, str]:
    """Return the settings that lead to HOST or HOST:PORT."""
    try:
        parts = urlsplit(f"//{given}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path:
        raise ValueError(f"{given!r} is not HOST or HOST:PORT.")
    return {"HOST": host} | ({"PORT": str(port)} if port else {})


def _copy(own: BaseDatabaseWrapper, changes: dict[str, str]) -> BaseDatabaseWrapper:
    """Copy the settings of a connection. A pool would open more connections than the proof needs."""
    copied = copy_connection(own)
    copied.settings_dict.update(changes)
    copied.settings_dict["OPTIONS"].pop("pool", None)
    return copied


@contextmanager
def connected(places: Sequence[Place]) -> Iterator[None]:
    """Have all of them in this thread."""
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(place.connected())
        yield


def race(places: Sequence[Place], calls: Sequence[Call]) -> list[list[Told]]:
    """Claim each key over all connections at the same time. Return by key each token and what it was told."""
    barrier = Barrier(len(places))

    def claim(place: Place, call: Call) -> Told:
        token = uuid4()
        barrier.wait(60)
        try:
            return token, place.claim(call, token)
        except Broken as broken:
            return token, broken

    def run(place: Place) -> list[Told]:
        with place.connected():
            return [claim(place, call) for call in calls]

    return [list(outcomes) for outcomes in zip(*threads.run_each(run, places), strict=True)]
