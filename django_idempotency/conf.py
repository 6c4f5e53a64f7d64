"""The settings: one dictionary, `IDEMPOTENCY`, read live and never cached.

Each property carries the name of its entry. What an entry may be, and what it means, is said at the policy argument
of the same name; a policy argument wins over the setting.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, TypeVar

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
_COUNTS: timedelta | None = timedelta(days=30)
_EVENTS: timedelta | None = timedelta(days=90)
_NONE: Final[Mapping[str, Any]] = {}


class Settings:
    """Every entry of `settings.IDEMPOTENCY`, with its type and its default."""

    @property
    def REQUIRED(self) -> bool:
        return self._get("REQUIRED", _boolean, _DEFAULT.required)

    @property
    def LEASE(self) -> timedelta:
        return self._get("LEASE", _duration, _DEFAULT.lease)

    @property
    def GRACE(self) -> timedelta:
        return self._get("GRACE", _duration, _DEFAULT.grace)

    @property
    def RETENTION(self) -> timedelta | None:
        return self._get("RETENTION", _optional_duration, _DEFAULT.retention)

    @property
    def EXPIRY(self) -> Expiry:
        return self._get("EXPIRY", _one_of(Expiry), _DEFAULT.expiry)

    @property
    def AUDIT(self) -> timedelta:
        return self._get("AUDIT", _duration, _DEFAULT.audit)

    @property
    def AFTER_EXPIRY(self) -> AfterExpiry:
        return self._get("AFTER_EXPIRY", _one_of(AfterExpiry), _DEFAULT.after_expiry)

    @property
    def ATTEMPTS(self) -> int:
        return self._get("ATTEMPTS", _count, _DEFAULT.attempts)

    @property
    def CLAIM_LIMIT(self) -> timedelta:
        return self._get("CLAIM_LIMIT", _duration, _DEFAULT.claim_limit)

    @property
    def RETRY_HINT(self) -> timedelta:
        return self._get("RETRY_HINT", _duration, _DEFAULT.retry_hint)

    @property
    def MAX_BODY(self) -> int:
        return self._get("MAX_BODY", _count, _DEFAULT.reply.longest_body)

    @property
    def CANONICAL_LIMIT(self) -> int:
        return self._get("CANONICAL_LIMIT", _count, _DEFAULT.fingerprint.longest_canonical)

    @property
    def SECRETS(self) -> Mapping[str, bytes]:
        return self._get("SECRETS", _secrets, {})

    @property
    def RECONCILE_TRIES(self) -> int:
        return self._get("RECONCILE_TRIES", _one_or_more, 10)

    @property
    def RECONCILE_BACKOFF(self) -> timedelta:
        return self._get("RECONCILE_BACKOFF", _duration, timedelta(seconds=30))

    @property
    def RECONCILE_BACKOFF_MAX(self) -> timedelta:
        return self._get("RECONCILE_BACKOFF_MAX", _duration, timedelta(hours=6))

    @property
    def RECONCILE_LIMIT(self) -> timedelta:
        return self._get("RECONCILE_LIMIT", _some_time, timedelta(seconds=30))

    @property
    def COUNT_OUTCOMES(self) -> bool:
        return self._get("COUNT_OUTCOMES", _boolean, False)

    @property
    def COUNT_RETENTION(self) -> timedelta | None:
        return self._get("COUNT_RETENTION", _optional_duration, _COUNTS)

    @property
    def EVENT_RETENTION(self) -> timedelta | None:
        return self._get("EVENT_RETENTION", _optional_duration, _EVENTS)

    @property
    def PROFILE(self) -> Profile:
        return self._get("PROFILE", _profile, IETF)

    @property
    def SCOPE(self) -> Callable[..., str] | None:
        return self._get("SCOPE", _function, None)

    @property
    def PICK_UP(self) -> timedelta:
        """A message that nobody acted on for so long counts as lost."""
        return self._get("PICK_UP", _duration, timedelta(minutes=1))

    @property
    def ENQUEUE(self) -> Callable[[str], object] | None:
        """Tells a worker of a record. Left out: the Celery task, where Celery is used. None: nobody is told."""
        return self._get("ENQUEUE", _function, None)

    def is_given(self, name: str) -> bool:
        """Whether the project wrote this entry, if only to say None."""
        return name in entries()

    def _get(self, name: str, convert: Callable[[Any], T], default: T) -> T:
        given = entries()
        if name not in given:
            return default
        try:
            return convert(given[name])
        except (TypeError, ValueError, OverflowError, ImportError) as error:
            raise ValueError(f"IDEMPOTENCY[{name!r}]: {error}") from error


def entries() -> Any:
    """The dictionary as the project wrote it."""
    return getattr(settings, "IDEMPOTENCY", _NONE)


def urlconf() -> str | None:
    """The project's URLs, where it has any."""
    return getattr(settings, "ROOT_URLCONF", None)


def middleware() -> list[str]:
    """The project's middleware, outermost first."""
    return list(settings.MIDDLEWARE)


def user_model() -> str:
    """The model of the project's users."""
    return settings.AUTH_USER_MODEL.lower()


def upload_limit() -> int | None:
    """The largest body that Django keeps in memory."""
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return limit


def use_tz() -> bool:
    """Whether the project's times know their zone."""
    return settings.USE_TZ


def names() -> list[str]:
    """Every entry there is."""
    return [name for name, value in vars(Settings).items() if isinstance(value, property)]


conf: Final = Settings()


def default_policy() -> Policy:
    """Return the policy of the settings alone, made once as long as they stay the same."""
    return _DEFAULTS.policy()


def policy(**arguments: Any) -> Policy:
    """A policy whose arguments win over the settings, and the settings over the defaults."""
    given = {
        "required": conf.REQUIRED,
        "lease": conf.LEASE,
        "grace": conf.GRACE,
        "retention": conf.RETENTION,
        "expiry": conf.EXPIRY,
        "audit": conf.AUDIT,
        "after_expiry": conf.AFTER_EXPIRY,
        "attempts": conf.ATTEMPTS,
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


class Arguments:
    """A policy's arguments as an endpoint wrote them; the settings fill in the rest whenever they change."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.given = dict(arguments)
        for name in self.given.keys() - _ARGUMENTS:
            close = get_close_matches(name, _ARGUMENTS, n=1)
            raise TypeError(f"A policy has no argument {name!r}" + (f"; did you mean {close[0]!r}?" if close else "."))
        Policy(**self.given)  # a wrong argument is an error where it is written
        self._made_from: Any = None
        self._policy: Policy | None = None

    def policy(self) -> Policy:
        """The policy under the settings of this moment: made anew only when the dictionary is another one."""
        current = entries()
        if self._policy is None or current is not self._made_from:
            self._policy, self._made_from = policy(**self.given), current
        return self._policy


_DEFAULTS: Final = Arguments({})
