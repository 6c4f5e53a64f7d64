"""The settings: one dictionary, `IDEMPOTENCY`, read live, and the policies that are made of it.

An entry means what the policy argument of the same name means, and a policy argument wins over the setting.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, replace
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from django.conf import settings
from django.utils.module_loading import import_string

from django_idempotency.core.fingerprint import FingerprintRule
from django_idempotency.core.policy import AfterExpiry, Expiry, Policy
from django_idempotency.core.profiles import IETF, STRIPE, Profile
from django_idempotency.core.replies import ReplyRule

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

PROFILES: Final = {"ietf": IETF, "stripe": STRIPE}
_DEFAULT: Final = Policy()
_ARGUMENTS: Final = frozenset(each.name for each in fields(Policy))
_NONE: Final[Mapping[str, Any]] = {}


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"must be True or False; it is {value!r}.")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"must be a whole number, not negative; it is {value!r}.")
    return value


def _duration(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise TypeError(f"must be a timedelta or a number of seconds; it is {value!r}.")
    duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if duration < timedelta(0):
        raise ValueError(f"must not be negative; it is {value!r}.")
    return duration


def _one_or_more(value: Any) -> int:
    if _count(value) < 1:
        raise ValueError(f"must be at least 1; it is {value!r}.")
    return _count(value)


def _some_time(value: Any) -> timedelta:
    if _duration(value) <= timedelta(0):
        raise ValueError(f"must be longer than nothing; it is {value!r}.")
    return _duration(value)


def _optional_duration(value: Any) -> timedelta | None:
    return None if value is None else _duration(value)


def _one_of(kind: type[E]) -> Callable[[Any], E]:
    def convert(value: Any) -> E:
        if value not in list(kind):
            raise ValueError(f"must be one of {', '.join(repr(each.value) for each in kind)}; it is {value!r}.")
        return kind(value)

    return convert


def _secrets(value: Any) -> Mapping[str, bytes]:
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(secret, bytes) for name, secret in pairs):
        raise TypeError("must map ids (text) to secrets (bytes); new fingerprints use the first.")
    return dict(pairs)


def _function(value: Any) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = import_string(value) if isinstance(value, str) else value
    if found is not None and not callable(found):
        raise TypeError(f"must be a function, the dotted path of one, or None; it is {value!r}.")
    return found


def _profile(value: Any) -> Profile:
    if isinstance(value, str):
        value = PROFILES[value] if value in PROFILES else import_string(value)
    if not isinstance(value, Profile):
        raise TypeError(f"must be 'ietf', 'stripe', a Profile or the dotted path of one; it is {value!r}.")
    return value


class Setting(Generic[T]):
    """One entry of the dictionary, converted each time it is read. ValueError names the entry that is wrong."""

    def __init__(self, convert: Callable[[Any], T], default: T) -> None:
        self.convert = convert
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> T:
        given = entries()
        if self.name not in given:
            return self.default
        try:
            return self.convert(given[self.name])
        except (TypeError, ValueError, OverflowError, ImportError) as error:
            raise ValueError(f"IDEMPOTENCY[{self.name!r}]: {error}") from error


class Settings:
    """Every entry of `settings.IDEMPOTENCY`, with its type and its default."""

    REQUIRED = Setting[bool](_boolean, _DEFAULT.required)
    LEASE = Setting[timedelta](_duration, _DEFAULT.lease)
    GRACE = Setting[timedelta](_duration, _DEFAULT.grace)
    RETENTION = Setting[timedelta | None](_optional_duration, _DEFAULT.retention)
    EXPIRY = Setting[Expiry](_one_of(Expiry), _DEFAULT.expiry)
    AUDIT = Setting[timedelta](_duration, _DEFAULT.audit)
    AFTER_EXPIRY = Setting[AfterExpiry](_one_of(AfterExpiry), _DEFAULT.after_expiry)
    ATTEMPTS = Setting[int](_count, _DEFAULT.attempts)
    ATTEMPTS_SPAN = Setting[timedelta](_duration, _DEFAULT.attempts_span)
    CLAIM_LIMIT = Setting[timedelta](_duration, _DEFAULT.claim_limit)
    RETRY_HINT = Setting[timedelta](_duration, _DEFAULT.retry_hint)
    MAX_BODY = Setting[int](_count, _DEFAULT.reply.longest_body)
    CANONICAL_LIMIT = Setting[int](_count, _DEFAULT.fingerprint.longest_canonical)
    SECRETS = Setting[Mapping[str, bytes]](_secrets, {})
    RECONCILE_TRIES = Setting[int](_one_or_more, 10)
    RECONCILE_BACKOFF = Setting[timedelta](_duration, timedelta(seconds=30))
    RECONCILE_BACKOFF_MAX = Setting[timedelta](_duration, timedelta(hours=6))
    UNATTENDED_LIMIT = Setting[timedelta | None](_optional_duration, timedelta(hours=24))
    RECONCILE_LIMIT = Setting[timedelta](_some_time, timedelta(seconds=30))
    COUNT_OUTCOMES = Setting[bool](_boolean, False)
    COUNT_RETENTION = Setting[timedelta | None](_optional_duration, timedelta(days=30))
    EVENT_RETENTION = Setting[timedelta | None](_optional_duration, timedelta(days=90))
    PROFILE = Setting[Profile](_profile, IETF)
    SCOPE = Setting[Callable[..., str] | None](_function, None)
    PICK_UP = Setting[timedelta](_duration, timedelta(minutes=1))  # then a message counts as lost
    # Left out: the Celery task, if the project uses Celery. None: workers look for work.
    ENQUEUE = Setting[Callable[[str], object] | None](_function, None)

    def is_given(self, name: str) -> bool:
        """True if the project wrote this entry, even as None."""
        return name in entries()


def entries() -> Any:
    """Return the dictionary as the project wrote it."""
    return getattr(settings, "IDEMPOTENCY", _NONE)


def urlconf() -> str | None:
    """Return the project's URLconf, if it has one."""
    return getattr(settings, "ROOT_URLCONF", None)


def middleware() -> list[str]:
    """Return the project's middleware, outermost first."""
    return list(settings.MIDDLEWARE)


def user_model() -> str:
    """Return the label of the project's user model."""
    return settings.AUTH_USER_MODEL.lower()


def upload_limit() -> int | None:
    """Return the size of the largest body that Django keeps in memory."""
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return limit


def use_tz() -> bool:
    """True if the project's times have a time zone."""
    return settings.USE_TZ


def names() -> list[str]:
    """Return the names of all entries."""
    return [name for name, value in vars(Settings).items() if isinstance(value, Setting)]


conf: Final = Settings()


def default_policy() -> Policy:
    """Return the policy of the settings alone, made once as long as they stay the same."""
    return _DEFAULTS.policy()


def policy(**arguments: Any) -> Policy:
    """Make a policy: arguments win over settings, and settings over defaults."""
    given = {
        "required": conf.REQUIRED,
        "lease": conf.LEASE,
        "grace": conf.GRACE,
        "retention": conf.RETENTION,
        "expiry": conf.EXPIRY,
        "audit": conf.AUDIT,
        "after_expiry": conf.AFTER_EXPIRY,
        "attempts": conf.ATTEMPTS,
        "attempts_span": conf.ATTEMPTS_SPAN,
        "claim_limit": conf.CLAIM_LIMIT,
        "retry_hint": conf.RETRY_HINT,
        "profile": conf.PROFILE,
        "scope": conf.SCOPE,
    }
    chosen = Policy(**{**given, **arguments})
    return replace(chosen, reply=_reply(chosen.reply), fingerprint=_fingerprint(chosen.fingerprint))


def _reply(rule: ReplyRule) -> ReplyRule:
    """Take from the settings what the rule leaves open."""
    from_setting = rule.max_body is None and conf.is_given("MAX_BODY")
    return replace(rule, max_body=conf.MAX_BODY) if from_setting else rule


def _fingerprint(rule: FingerprintRule) -> FingerprintRule:
    if rule.canonical_limit is None and conf.is_given("CANONICAL_LIMIT"):
        rule = replace(rule, canonical_limit=conf.CANONICAL_LIMIT)
    secrets = conf.SECRETS
    return replace(rule, secrets=secrets, secret_id=next(iter(secrets))) if secrets and not rule.secrets else rule


class Arguments:
    """A policy's arguments as an endpoint wrote them. The settings fill in the rest."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.given = dict(arguments)
        for name in self.given.keys() - _ARGUMENTS:
            close = get_close_matches(name, _ARGUMENTS, n=1)
            raise TypeError(f"A policy has no argument {name!r}" + (f"; did you mean {close[0]!r}?" if close else "."))
        Policy(**self.given)  # a wrong argument is an error where it is written
        self._made_from: Any = None
        self._policy: Policy | None = None

    def policy(self) -> Policy:
        """Return the policy under the current settings, made again only when they have changed."""
        current = entries()
        if self._policy is None or current != self._made_from:
            self._policy, self._made_from = policy(**self.given), copy(current)
        return self._policy


_DEFAULTS: Final = Arguments({})
