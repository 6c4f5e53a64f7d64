"""What one endpoint decided, validated when it is written down."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from django_idempotency.core.fingerprint import FingerprintRule
from django_idempotency.core.keys import KeyRule
from django_idempotency.core.replies import ReplyRule


class Mode(StrEnum):
    """The guarantee an endpoint declares."""

    LEASED = "leased"  # effects outside the database: the claim commits before the handler runs
    ATOMIC = "atomic"  # all effects in this database: claim, handler and completion are one transaction


class LostLease(StrEnum):
    """What a lease that ran out means."""

    UNKNOWN = "unknown"  # nobody may run it again before it is settled
    RESTART = "restart"  # safe to restart: the next request takes it over, with the same downstream keys
    RESUME = "resume"  # an operation with recovery points: anybody may go on from the last one


class Transaction(StrEnum):
    """Where a leased handler's transaction begins."""

    WHOLE = "whole"  # before the handler: everything it writes commits with its answer
    LATE = "late"  # at `request.idempotency.finish(write)`: nothing is open during foreign calls


class Streaming(StrEnum):
    """What is stored of an answer that is streamed."""

    OMIT = "omit"  # status and headers; the replay has no body and says so
    BUFFER = "buffer"  # the body too, up to the cap
    REFUSE = "refuse"  # nothing: a streamed answer is an error of the endpoint


class Expiry(StrEnum):
    """What happens to an answer when its retention is over."""

    HARD = "hard"  # deleted
    SOFT = "soft"  # kept for audit, never replayed


class AfterExpiry(StrEnum):
    """What a request with an expired key gets."""

    RUN = "run"  # runs as new
    GONE = "gone"  # is refused


class Shape(StrEnum):
    """How a refusal is written."""

    PROBLEM = "problem"  # RFC 9457
    STRIPE = "stripe"


class OnError(StrEnum):
    """What an exception means that is neither a refusal nor proof that nothing happened."""

    DOUBT = "doubt"  # the outcome is unknown
    STORE = "store"  # the error answer is the answer
    RELEASE = "release"  # the endpoint vouches that a repeat is harmless


def _member(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(each.value) for each in kind)
        raise ValueError(f"{name} must be one of {known}; it is {value!r}.") from None


_LONGEST: Final = timedelta(seconds=2**30 - 1)  # the record's columns hold the sum of two


def whole_seconds(name: str, value: timedelta) -> None:
    """ValueError where no lease could last so long."""
    if value < timedelta(seconds=1) or value.microseconds:
        raise ValueError(f"{name} must be a whole number of seconds, at least one; it is {value!r}.")
    if value > _LONGEST:
        raise ValueError(f"{name} must not be longer than {_LONGEST.days} days; it is {value!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The dialect in which an API speaks about keys."""

    name: str
    header: str = "Idempotency-Key"
    replayed_header: str = "Idempotency-Replayed"
    strict: bool = False  # refuse a bare key: only the quoted form of RFC 9651 is a key
    missing: int = 400
    invalid: int = 400
    mismatch: int = 422
    in_flight: int = 409
    unknown: int = 409
    gone: int = 410
    unavailable: int = 503
    shape: Shape = Shape.PROBLEM
    reshape: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None  # a problem's members -> your own JSON
    documentation: str = ""  # address of the published rules, sent as Link
    release_invalid: bool = False  # validation errors give the key back

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _member("shape", Shape, self.shape))
        for each in ("missing", "invalid", "mismatch", "in_flight", "unknown", "gone", "unavailable"):
            status = getattr(self, each)
            allowed = range(200, 600) if each == "in_flight" else range(400, 600)
            if status not in allowed:
                raise ValueError(f"{each} must be a status from {allowed[0]} to {allowed[-1]}; it is {status!r}.")
        for each in ("name", "header", "replayed_header"):
            if not getattr(self, each):
                raise ValueError(f"{each} must not be empty.")


IETF: Final = Profile(name="ietf")
STRIPE: Final = Profile(
    name="stripe",
    replayed_header="Idempotent-Replayed",
    mismatch=400,
    shape=Shape.STRIPE,
    release_invalid=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything one endpoint decided about its keys."""

    operation: str = ""  # stable name, part of every scope; the route's name when empty
    mode: Mode = Mode.LEASED
    transaction: Transaction = Transaction.WHOLE
    profile: Profile = IETF
    required: bool = True  # a request without a key is refused
    methods: Collection[str] = frozenset({"POST", "PATCH"})
    lease: timedelta = timedelta(minutes=5)  # at least three times the handler's slowest hundredth
    grace: timedelta = timedelta(minutes=5)  # longest life of a handler plus longest delay of a message
    heartbeat: timedelta | None = None  # a running handler's lease is extended by itself, for so long at most
    on_lost_lease: LostLease = LostLease.UNKNOWN
    retention: timedelta | None = timedelta(hours=24)  # at least the clients' retry window; None keeps for ever
    expiry: Expiry = Expiry.HARD
    audit: timedelta = timedelta(days=30)  # how long a soft-expired record stays
    after_expiry: AfterExpiry = AfterExpiry.RUN
    attempts: int = 10  # how often a key may be tried whose attempts were proven not executed
    on_error: OnError = OnError.DOUBT
    refusals: Collection[type[Exception]] = ()  # exceptions that are answers of the endpoint, like a 404
    not_executed: Callable[[BaseException], bool] | None = None  # the endpoint's own proof that nothing happened
    store: Callable[[int], bool] | Collection[int] | None = None  # which statuses are kept; None keeps every one
    streaming: Streaming = Streaming.OMIT
    key: KeyRule = field(default_factory=KeyRule)
    fingerprint: FingerprintRule = field(default_factory=FingerprintRule)
    reply: ReplyRule = field(default_factory=ReplyRule)
    claim_limit: timedelta = timedelta(seconds=2)  # then the store counts as unavailable
    retry_hint: timedelta = timedelta(seconds=2)  # the most a client is told to wait for a running request
    scope: Callable[..., str] | None = None  # whose key it is; the authenticated principal when None
    share_anonymous: bool = False  # callers without credentials share one scope
    guessable_anonymous: bool = False  # they may use keys that somebody else could guess
    wait: timedelta = timedelta(0)  # how long a duplicate waits for the answer instead of being refused
    authorize: Callable[[Any, Any], bool] | None = None  # may refuse a replay
    upgrade: Callable[[Any], Any] | None = None  # turns a reply of another schema version into today's

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _ENUMS:
                object.__setattr__(self, each.name, _member(each.name, _ENUMS[each.name], value))
            elif not _FITS[each.name][0](value):
                raise TypeError(f"{each.name} must be {_FITS[each.name][1]}; it is {value!r}.")
        if self.profile.strict and not self.key.strict:
            object.__setattr__(self, "key", replace(self.key, strict=True))
        whole_seconds("lease", self.lease)
        whole_seconds("grace", self.grace)
        whole_seconds("retry_hint", self.retry_hint)
        whole_seconds("audit", self.audit)
        if self.retention is not None:
            whole_seconds("retention", self.retention)
        if self.claim_limit < timedelta(milliseconds=10):
            raise ValueError(f"claim_limit must be at least 10 milliseconds; it is {self.claim_limit!r}.")
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1; it is {self.attempts!r}.")
        if not self.methods or any(method != method.upper() for method in self.methods):
            raise ValueError(f"methods must name HTTP methods in capitals; it is {self.methods!r}.")
        if self.heartbeat is not None:
            whole_seconds("heartbeat", self.heartbeat)
            if self.transaction is not Transaction.LATE:
                raise ValueError("heartbeat needs transaction='late': a long transaction is no place to wait in.")
        if self.wait < timedelta(0):
            raise ValueError(f"wait must not be negative; it is {self.wait!r}.")
        if self.mode is Mode.ATOMIC and self.transaction is Transaction.LATE:
            raise ValueError(
                "transaction='late' cannot hold in atomic mode: there the whole handler is one transaction."
            )
        if self.mode is Mode.ATOMIC and self.on_lost_lease is not LostLease.UNKNOWN:
            raise ValueError("on_lost_lease says nothing in atomic mode: a crash there leaves no record behind.")
        if self.mode is Mode.ATOMIC and self.on_error is OnError.STORE:
            raise ValueError("on_error='store' cannot hold in atomic mode: an error rolls the whole transaction back.")

    def keeps(self, status: int) -> bool:
        """Whether an answer with this status is stored."""
        if self.store is None:
            return True
        return self.store(status) if callable(self.store) else status in self.store


_ENUMS: Final = {
    "mode": Mode,
    "transaction": Transaction,
    "streaming": Streaming,
    "on_lost_lease": LostLease,
    "expiry": Expiry,
    "after_expiry": AfterExpiry,
    "on_error": OnError,
}


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _optional(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _are_refusals(value: Any) -> bool:
    members = value if isinstance(value, Collection) else (None,)
    return all(isinstance(each, type) and issubclass(each, Exception) for each in members)


def _are_statuses(value: Any) -> bool:
    return callable(value) or (isinstance(value, Collection) and all(isinstance(each, int) for each in value))


def _are_names(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


_TEXT: Final = (_is(str), "text")
_FLAG: Final = (_is(bool), "True or False")
_TIME: Final = (_is(timedelta), "a timedelta")
_OPTIONAL_TIME: Final = (_optional(_is(timedelta)), "a timedelta or None")
_FUNCTION: Final = (_optional(callable), "a function or None")

# What a value has to be for the first request not to be the one that finds out.
_FITS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "operation": _TEXT,
    "profile": (_is(Profile), "a Profile, IETF or STRIPE for example"),
    "required": _FLAG,
    "methods": (_are_names, "a collection of names"),
    "lease": _TIME,
    "grace": _TIME,
    "heartbeat": _OPTIONAL_TIME,
    "retention": _OPTIONAL_TIME,
    "audit": _TIME,
    "attempts": (_is(int), "a whole number"),
    "refusals": (_are_refusals, "a collection of exception classes"),
    "not_executed": _FUNCTION,
    "store": (_optional(_are_statuses), "a function, a collection of statuses or None"),
    "key": (_is(KeyRule), "a KeyRule"),
    "fingerprint": (_is(FingerprintRule), "a FingerprintRule"),
    "reply": (_is(ReplyRule), "a ReplyRule"),
    "claim_limit": _TIME,
    "retry_hint": _TIME,
    "scope": _FUNCTION,
    "share_anonymous": _FLAG,
    "guessable_anonymous": _FLAG,
    "wait": _TIME,
    "authorize": _FUNCTION,
    "upgrade": _FUNCTION,
}
