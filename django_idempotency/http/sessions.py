"""The principal of callers that are known by their session alone."""

from contextlib import suppress
from typing import Any, Final

from django.contrib.sessions.backends.signed_cookies import SessionStore as SignedCookies
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from django_idempotency.conf import earlier_secrets
from django_idempotency.core.validation import SESSION, SESSION_THROUGH_LOGIN
from django_idempotency.exceptions import NoPrincipal

_SALT: Final = "django_idempotency.session"
_FIELD: Final = "_idempotency_session"  # in the session's data, which a login keeps
_BEGUN: Final = "_idempotency_guest"  # an empty session would not be saved
_READS: Final = ("GET", "HEAD", "OPTIONS")


def session_principal(request: HttpRequest, kind: str) -> str:
    """Return a digest of the session's key. A write creates the session if there is none.

    A login gives the session another key. With `session-through-login` the first digest is kept in the session's data.
    Two requests at once compute the same digest, so neither has to wait for what the other saves.
    """
    session: Any = getattr(request, "session", None)
    if session is None:
        raise NoPrincipal("scope='session' needs SessionMiddleware.")
    if isinstance(session, SignedCookies):
        raise NoPrincipal("scope='session' needs sessions that are stored: a signed cookie changes with its content.")
    kept = session.get(_FIELD)  # reads the session: a key that the store does not know becomes None
    if kind == SESSION_THROUGH_LOGIN and kept:
        return f"session:{kept}"
    if session.session_key is None:
        if request.method in _READS:
            raise NoPrincipal("The request has no session.")
        session.create()
    digest = _digest(session)
    if kind == SESSION_THROUGH_LOGIN:
        session[_FIELD] = digest
        session.save()  # Django saves none with a response of 500
    return f"session:{digest}"


def earlier_session_principals(request: HttpRequest, kind: Any) -> list[str]:
    """Return the principals that the session had before SECRET_KEY was rotated; none if it keeps its first one."""
    session: Any = getattr(request, "session", None)
    if kind != SESSION or session is None or session.session_key is None:
        return []
    return [f"session:{_digest(session, secret)}" for secret in earlier_secrets()]


def begin_session(session: Any) -> None:
    """Let the response of a page begin a session, so that two clicks on its form come from the same guest."""
    with suppress(SynchronousOnlyOperation):  # an async view renders it: its form's first request begins the session
        session.get(_FIELD)  # reads the session, as above
        if session.session_key is None:
            session[_BEGUN] = True


def _digest(session: Any, secret: str | bytes | None = None) -> str:
    return salted_hmac(_SALT, session.session_key, secret=secret, algorithm="sha256").hexdigest()
