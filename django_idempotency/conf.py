"""The settings: one dictionary, `IDEMPOTENCY`, read live, and the policies that are made of it.

An entry means what the policy argument of the same name means, and a policy argument wins over the setting.
"""

import hmac
import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from django.conf import ENVIRONMENT_VARIABLE, settings
from django.utils.encoding import force_bytes
from django.utils.module_loading import import_string

from django_idempotency.core.conversion import (
    to_address,
    to_address_of_key,
    to_boolean,
    to_cache_alias,
    to_count,
    to_duration,
    to_namespace,
    to_one_of,
    to_optional_duration,
    to_positive_count,
    to_positive_duration,
    to_secrets,
)
from django_idempotency.core.fingerprint import FingerprintRule
from django_idempotency.core.policy import AfterExpiry, Expiry, Mode, OnDisconnect, Policy
from django_idempotency.core.profiles import IETF, STRIPE, Profile
from django_idempotency.core.replies import ReplyRule
from django_idempotency.core.validation import (
    SESSION_SCOPES,
    describe_choice,
    is_sync_function,
    suggest,
)

T = TypeVar("T")

PROFILES: Final = {"ietf": IETF, "stripe": STRIPE}
_DEFAULT: Final = Policy()
_ARGUMENTS: Final = frozenset(each.name for each in fields(Policy))
_NONE: Final[Mapping[str, Any]] = {}


def _import(path: str, *names: str) -> Any:
    """Return what a dotted path leads to; raise ValueError if it leads nowhere. `names` are allowed instead."""
    try:
        return import_string(path)
    except ImportError as error:
        if names and "." not in path:
            raise ValueError(f"{describe_choice(names, path)} A dotted path is allowed too.") from None
        raise ValueError(f"{path!r} cannot be imported: {error}.") from error


def _function(value: Any) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = _import(value) if isinstance(value, str) else value
    if found is not None and not is_sync_function(found):
        raise TypeError(f"must be a function that is not async, the dotted path of one, or None; it is {value!r}.")
    return found


def _scope(value: Any) -> Callable[..., Any] | str | None:
    if isinstance(value, str):
        return value if value in SESSION_SCOPES else _function(_import(value, *SESSION_SCOPES))
    return _function(value)


def _profile(value: Any) -> Profile:
    if isinstance(value, str):
        value = PROFILES[value] if value in PROFILES else _import(value, *PROFILES)
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

    MODE = Setting[Mode](to_one_of(Mode), _DEFAULT.mode)
    REQUIRED = Setting[bool](to_boolean, _DEFAULT.required)
    LEASE = Setting[timedelta](to_duration, _DEFAULT.lease)
    GRACE = Setting[timedelta](to_duration, _DEFAULT.grace)
    ON_DISCONNECT = Setting[OnDisconnect](to_one_of(OnDisconnect), _DEFAULT.on_disconnect)
    RETENTION = Setting[timedelta | None](to_optional_duration, _DEFAULT.retention)
    EXPIRY = Setting[Expiry](to_one_of(Expiry), _DEFAULT.expiry)
    AUDIT = Setting[timedelta](to_duration, _DEFAULT.audit)
    AFTER_EXPIRY = Setting[AfterExpiry](to_one_of(AfterExpiry), _DEFAULT.after_expiry)
    ATTEMPTS = Setting[int](to_count, _DEFAULT.attempts)
    ATTEMPTS_SPAN = Setting[timedelta](to_duration, _DEFAULT.attempts_span)
    CLAIM_LIMIT = Setting[timedelta](to_duration, _DEFAULT.claim_limit)
    RETRY_HINT = Setting[timedelta](to_duration, _DEFAULT.retry_hint)
    MAX_BODY = Setting[int](to_count, _DEFAULT.reply.longest_body)
    CANONICAL_LIMIT = Setting[int](to_count, _DEFAULT.fingerprint.longest_canonical)
    SECRETS = Setting[Mapping[str, bytes]](to_secrets, {})
    RECONCILE_TRIES = Setting[int](to_positive_count, 10)
    RECONCILE_BACKOFF = Setting[timedelta](to_duration, timedelta(seconds=30))
    RECONCILE_BACKOFF_MAX = Setting[timedelta](to_duration, timedelta(hours=6))
    UNATTENDED_LIMIT = Setting[timedelta | None](to_optional_duration, timedelta(hours=24))
    RECONCILE_LIMIT = Setting[timedelta](to_positive_duration, timedelta(seconds=30))
    COUNT_OUTCOMES = Setting[bool](to_boolean, False)
    COUNT_RETENTION = Setting[timedelta | None](to_optional_duration, timedelta(days=30))
    EVENT_RETENTION = Setting[timedelta | None](to_optional_duration, timedelta(days=90))
    PROFILE = Setting[Profile](_profile, IETF)
    SCOPE = Setting[Callable[..., str] | str | None](_scope, None)
    TENANT = Setting[Callable[..., str] | None](_function, None)
    # The tenant whose records an admin shows. Left out: that of TENANT. None: all of them.
    ADMIN_TENANT = Setting[Callable[..., str | None] | None](_function, None)
    # Separates the downstream keys of installations and tenants. None: an installation is known by its SECRET_KEY.
    NAMESPACE = Setting[str | Callable[[], str] | None](to_namespace, None)
    # A message that no worker acted on for so long counts as lost.
    PICK_UP = Setting[timedelta](to_duration, timedelta(minutes=1))
    # Tells a worker of a record. Left out: the Celery task, if the project uses Celery. None: workers look for work.
    ENQUEUE = Setting[Callable[[str], object] | None](_function, None)
    PREPARED_STATEMENTS = Setting[bool](to_boolean, False)  # prepare the statements of most requests, on PostgreSQL
    MAX_DISCONNECTED = Setting[int](to_count, 100)  # how many async views one process finishes without their clients
    CACHE_ALIAS = Setting[str | None](to_cache_alias, None)  # in front of completed records
    # What the audit trail keeps of an exception's message. Left out: the message, redacted. None: nothing.
    DESCRIBE_ERROR = Setting[Callable[[BaseException], str] | None](_function, None)
    TRACE_ID = Setting[Callable[[], str | None] | None](_function, None)  # the project's name for the current request
    PROVIDER_URL = Setting[str | None](to_address_of_key, None)  # where a provider shows a downstream key
    RUNBOOK_URL = Setting[str | None](to_address, None)  # where operators of this project read what to do
    SERVER_THREADS = Setting[int | None](to_positive_count, None)  # how many requests one process serves at a time

    def is_given(self, name: str) -> bool:
        """True if the project wrote this entry, even as None."""
        return name in entries()


def entries() -> Any:
    """Return the dictionary as the project wrote it."""
    return getattr(settings, "IDEMPOTENCY", _NONE)


def urlconf() -> str | None:
    """Return the project's URLconf, if it has one."""
    return getattr(settings, "ROOT_URLCONF", None)


def settings_module() -> str:
    """Return the name of the project's settings module; empty if its settings are made in code."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "")


def middleware() -> list[str]:
    """Return the project's middleware, outermost first."""
    return list(settings.MIDDLEWARE)


def user_model() -> str:
    """Return the label of the project's user model."""
    return settings.AUTH_USER_MODEL.lower()


def tenant_model() -> str | None:
    """Return the label of django-tenants' tenant model, if the project has one."""
    return getattr(settings, "TENANT_MODEL", None)


def is_in(apps: str, app: str) -> bool:
    """True if django-tenants' list of this name, SHARED_APPS or TENANT_APPS, has the app."""
    return any(each.split(".")[0] == app for each in getattr(settings, apps, ()))


def cors_headers(setting: str) -> list[str]:
    """Return the header names of a setting of django-cors-headers."""
    return list(getattr(settings, setting, ()))


def allowed_hosts() -> list[str]:
    """Return the names under which the project is served."""
    return list(settings.ALLOWED_HOSTS)


def upload_limit() -> int | None:
    """Return the size of the largest body that Django keeps in memory."""
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return limit


def default_namespace() -> str:
    """Return what separates this installation from others. A digest, so that it can be written into the settings."""
    return _digest_secret(settings.SECRET_KEY)


@lru_cache(maxsize=1)
def _digest_secret(secret: str | bytes) -> str:
    return hmac.digest(force_bytes(secret), b"django_idempotency.namespace", "sha256").hex()


def cache_secret() -> bytes:
    """Return the secret of the replay cache's entries."""
    return hmac.digest(force_bytes(settings.SECRET_KEY), b"django_idempotency.cache", "sha256")


def earlier_secrets() -> list[str | bytes]:
    """Return the keys that SECRET_KEY had before it was rotated, the newest first."""
    return list(settings.SECRET_KEY_FALLBACKS)


def debug() -> bool:
    """True if this is a developer's server."""
    return bool(settings.DEBUG)


def use_tz() -> bool:
    """True if the project's times have a time zone."""
    return settings.USE_TZ


def names() -> list[str]:
    """Return the names of all entries."""
    return [name for name, value in vars(Settings).items() if isinstance(value, Setting)]


conf: Final = Settings()
_POLICY_SETTINGS: Final = [name for name in names() if name.lower() in _ARGUMENTS]


def default_policy() -> Policy:
    """Return the policy of the settings alone, made once as long as they stay the same."""
    return _DEFAULTS.policy()


def policy(**arguments: Any) -> Policy:
    """Make a policy: arguments win over settings, and settings over defaults."""
    given = {name.lower(): getattr(conf, name) for name in _POLICY_SETTINGS}
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
            raise TypeError(f"A policy has no argument {name!r}; {suggest(name, sorted(_ARGUMENTS))}")
        own = Policy(**self.given)  # a wrong argument is an error where it is written
        self.methods = own.methods  # no setting supplies them
        self._made_from: Any = None
        self._policy: Policy | None = None

    def policy(self) -> Policy:
        """Return the policy under the current settings, made again only when they have changed."""
        current = entries()
        if self._policy is None or current != self._made_from:
            self._policy, self._made_from = policy(**self.given), copy(current)
        return self._policy


_DEFAULTS: Final = Arguments({})
