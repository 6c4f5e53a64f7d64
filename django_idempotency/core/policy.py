"""The options of one endpoint, checked when the policy is created."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from django_idempotency.core.fingerprint import FingerprintRule
from django_idempotency.core.keys import KeyRule
from django_idempotency.core.profiles import IETF, Profile
from django_idempotency.core.replies import ReplyRule
from django_idempotency.core.states import LostLease
from django_idempotency.core.validation import (
    AUTHORIZATION,
    EXCEPTIONS,
    FLAG,
    FUNCTION,
    NAMES,
    NUMBER,
    PROOF,
    SCOPE_SOURCE,
    STATUS_FILTER,
    TEXT,
    TIMEDELTA,
    ArgumentType,
    discard_awaitable,
    instance_of,
    is_true,
    needs_arguments,
    optional,
    require_type,
    require_whole_seconds,
    to_member,
)


class Mode(StrEnum):
    """The guarantee that an endpoint declares."""

    LEASED = "leased"  # effects outside the database: the claim commits before the handler runs
    ATOMIC = "atomic"  # all effects in this database: claim, handler and completion are one transaction


class OnDisconnect(StrEnum):
    """What happens to an async view whose client disconnects; a sync view always finishes."""

    FINISH = "finish"  # it runs to its end, at most until its lease is over
    CANCEL = "cancel"  # it is cancelled, and its outcome is unknown


class Transaction(StrEnum):
    """Where the transaction of a leased handler begins."""

    WHOLE = "whole"  # before the handler: its writes commit together with its response
    LATE = "late"  # at `request.idempotency.finish(write)`: no transaction is open during external calls


class Streaming(StrEnum):
    """What is stored of a streaming response."""

    BUFFER = "buffer"  # the body, up to the rule's max_body; it is read before the first byte is sent
    OMIT = "omit"  # status and headers; a retry learns that the request was executed, and gets no body
    REFUSE = "refuse"  # nothing: a streaming response is an error of the endpoint


class Expiry(StrEnum):
    """What happens to a stored response when its retention ends."""

    HARD = "hard"  # deleted
    SOFT = "soft"  # kept for audit, never replayed


class AfterExpiry(StrEnum):
    """How a request with an expired key is handled."""

    RUN = "run"  # it runs as new
    GONE = "gone"  # it is rejected


class OnError(StrEnum):
    """What an exception means that is neither an error response nor proof that nothing happened."""

    DOUBT = "doubt"  # the outcome is unknown
    STORE = "store"  # the error page is stored as the response
    RELEASE = "release"  # the endpoint guarantees that running again is harmless


class OtherWrites(StrEnum):
    """What happens when an atomic handler writes to another database, which does not roll back with the record's."""

    WARN = "warn"  # logged once for each operation and database
    REFUSE = "refuse"  # the write is an error, and is not made
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All options of one endpoint."""

    operation: str = ""  # stable name, part of every scope; the route's name if empty
    mode: Mode = Mode.LEASED
    transaction: Transaction = Transaction.WHOLE
    profile: Profile = IETF
    required: bool = True  # reject a request without a key
    key_source: Callable[[Any], str | Collection[str] | None] | None = None  # where the key is; the header if None
    skip: Callable[[Any], bool] | None = None  # a request of which it returns True runs without protection
    methods: Collection[str] = frozenset({"POST", "PATCH"})
    lease: timedelta = timedelta(minutes=5)  # at least three times the handler's p99
    grace: timedelta = timedelta(minutes=5)  # longest life of a handler plus longest delay of a message
    heartbeat: timedelta | None = None  # renew the lease of a running handler, for this long at most
    on_lost_lease: LostLease = LostLease.UNKNOWN
    on_disconnect: OnDisconnect = OnDisconnect.FINISH  # async views only
    retention: timedelta | None = timedelta(hours=24)  # at least the clients' retry window; None keeps for ever
    expiry: Expiry = Expiry.HARD
    audit: timedelta = timedelta(days=30)  # how long a soft-expired record is kept
    after_expiry: AfterExpiry = AfterExpiry.RUN
    attempts: int = 10  # maximum for a key whose earlier attempts were proven not executed
    attempts_span: timedelta = timedelta(minutes=10)  # no key uses up its attempts sooner; 0 sets no pause
    on_error: OnError = OnError.DOUBT
    other_writes: OtherWrites = OtherWrites.WARN
    refusals: Collection[type[Exception]] = ()  # exceptions that are the endpoint's response, as Http404 is
    not_executed: Callable[[BaseException], bool] | Collection[type[Exception]] | None = None  # proof of no effect
    store: Callable[[int], bool] | Collection[int] | None = None  # which error statuses are stored; None stores all
    is_error: Callable[[Any], bool] | None = None  # says of a response below 400 that it tells of an error
    streaming: Streaming = Streaming.BUFFER
    key: KeyRule = field(default_factory=KeyRule)
    fingerprint: FingerprintRule = field(default_factory=FingerprintRule)
    reply: ReplyRule = field(default_factory=ReplyRule)
    claim_limit: timedelta = timedelta(seconds=2)  # after this the store counts as unavailable
    retry_hint: timedelta = timedelta(seconds=2)  # the longest Retry-After for a running request
    scope: Callable[..., str] | str | None = None  # who owns the key; the authenticated principal if None
    tenant: Callable[..., str] | None = None  # the customer of a shared installation, part of every scope
    share_anonymous: bool = False  # callers without credentials share one scope
    anonymous_unprotected: bool = False  # callers without credentials run without protection
    guessable_anonymous: bool = False  # let them use keys that another caller could guess
    wait: timedelta = timedelta(0)  # how long a duplicate waits for the response before it is rejected
    verify: Callable[[Any], bool] | None = None  # may reject a request before its key is looked up
    authorize: Callable[[Any, Any], bool] | str | None = None  # may reject a replay
    receipts: bool | None = None  # stored responses are shown at addresses; None: if the endpoint can be asked who may
    published: bool = True  # the rules page lists the endpoint
    cache: bool = False  # replays may come from the cache that the setting CACHE_ALIAS names
    upgrade: Callable[[Any], Any] | None = None  # turns a stored response of another schema version into today's

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _ENUMS:
                object.__setattr__(self, each.name, to_member(each.name, _ENUMS[each.name], value))
            else:
                require_type(each.name, value, _TYPES[each.name])
        if self.profile.strict and not self.key.strict:
            object.__setattr__(self, "key", replace(self.key, strict=True))
        self._check_durations()
        self._check_values()
        if self.mode is Mode.ATOMIC:
            self._check_atomic()

    def _check_durations(self) -> None:
        for name in ("lease", "grace", "retry_hint", "audit", "retention", "heartbeat"):
            value = getattr(self, name)
            if value is not None:
                require_whole_seconds(name, value)
        if self.claim_limit < timedelta(milliseconds=10):
            raise ValueError(f"claim_limit must be at least 10 milliseconds; it is {self.claim_limit!r}.")
        for name in ("wait", "attempts_span"):
            if getattr(self, name) < timedelta(0):
                raise ValueError(f"{name} must not be negative; it is {getattr(self, name)!r}.")

    def _check_values(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1; it is {self.attempts!r}.")
        if not self.methods or any(method != method.upper() for method in self.methods):
            raise ValueError(f"methods must name HTTP methods in capitals; it is {self.methods!r}.")
        if self.anonymous_unprotected and self.share_anonymous:
            raise ValueError("anonymous_unprotected cannot be combined with share_anonymous, which protects them.")
        if self.after_expiry is AfterExpiry.GONE and self.expiry is Expiry.HARD:
            raise ValueError(
                "after_expiry='gone' needs expiry='soft': with 'hard' the reaper deletes the record, and the next "
                "request runs as new."
            )
        if self.heartbeat is not None and self.transaction is not Transaction.LATE:
            raise ValueError("heartbeat needs transaction='late', so that no transaction is open for that long.")

    def _check_atomic(self) -> None:
        if self.transaction is Transaction.LATE:
            raise ValueError(
                "transaction='late' cannot be combined with mode='atomic', where the whole handler is one transaction."
            )
        if self.on_lost_lease is not LostLease.UNKNOWN:
            raise ValueError("on_lost_lease has no effect with mode='atomic', where a crash leaves no record.")
        if self.on_error is OnError.STORE:
            raise ValueError(
                "on_error='store' cannot be combined with mode='atomic', where an error rolls everything back."
            )

    def tenant_without_request(self) -> str:
        """Return the tenant of code outside HTTP; empty if the policy's function needs a request to tell."""
        if self.tenant is None or needs_arguments(self.tenant):
            return ""
        tenant = self.tenant()
        if discard_awaitable(tenant) or not isinstance(tenant, str) or not tenant:
            raise TypeError(f"tenant must return a str that is not empty; it returned {tenant!r}.")
        return tenant

    def pause_after(self, attempts: int) -> float:
        """Return the seconds after this many attempts before the next one. The first retry may come at once."""
        if attempts < 2:
            return 0.0
        return min(self.retry_hint.total_seconds() * 2.0 ** min(attempts - 2, 30), self.attempts_span.total_seconds())

    def proves_nothing_happened(self, error: BaseException) -> bool:
        """True if `not_executed` names this exception. Whatever a function there raises is raised."""
        if callable(self.not_executed):
            return is_true(self.not_executed(error))
        return isinstance(error, tuple(self.not_executed or ()))

    def keeps(self, status: int) -> bool:
        """True if a response with this status is stored."""
        if self.store is None:
            return True
        if not callable(self.store):
            return status in self.store
        kept = self.store(status)
        return discard_awaitable(kept) or kept


_ENUMS: Final = {
    "mode": Mode,
    "transaction": Transaction,
    "streaming": Streaming,
    "on_lost_lease": LostLease,
    "on_disconnect": OnDisconnect,
    "expiry": Expiry,
    "after_expiry": AfterExpiry,
    "on_error": OnError,
    "other_writes": OtherWrites,
}

_TYPES: Final[Mapping[str, ArgumentType]] = {
    "operation": TEXT,
    "profile": instance_of(Profile, "a Profile, for example IETF or STRIPE"),
    "required": FLAG,
    "key_source": optional(FUNCTION),
    "skip": optional(FUNCTION),
    "methods": NAMES,
    "lease": TIMEDELTA,
    "grace": TIMEDELTA,
    "heartbeat": optional(TIMEDELTA),
    "retention": optional(TIMEDELTA),
    "audit": TIMEDELTA,
    "attempts": NUMBER,
    "attempts_span": TIMEDELTA,
    "refusals": EXCEPTIONS,
    "not_executed": optional(PROOF),
    "store": optional(STATUS_FILTER),
    "is_error": optional(FUNCTION),
    "key": instance_of(KeyRule, "a KeyRule"),
    "fingerprint": instance_of(FingerprintRule, "a FingerprintRule"),
    "reply": instance_of(ReplyRule, "a ReplyRule"),
    "claim_limit": TIMEDELTA,
    "retry_hint": TIMEDELTA,
    "scope": optional(SCOPE_SOURCE),
    "tenant": optional(FUNCTION),
    "share_anonymous": FLAG,
    "anonymous_unprotected": FLAG,
    "guessable_anonymous": FLAG,
    "wait": TIMEDELTA,
    "verify": optional(FUNCTION),
    "authorize": optional(AUTHORIZATION),
    "receipts": optional(FLAG),
    "published": FLAG,
    "cache": FLAG,
    "upgrade": optional(FUNCTION),
}
