"""What the HTTP tests share: how often a view ran, posting with a key, and ATOMIC_REQUESTS for a while."""

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client

KEY = "9GkX2pQ7rLw4TzB8nVc5Yd"
MIDDLEWARE = "django_idempotency.middleware.IdempotencyMiddleware"


class Ran:
    """How often any view ran."""

    count = 0

    @classmethod
    def again(cls) -> int:
        cls.count += 1
        return cls.count


class Person:
    """Somebody who posts JSON, always with the same key unless told otherwise."""

    def __init__(self, name: str | None = None) -> None:
        self.client = Client(raise_request_exception=False)
        self.user = None if name is None else User.objects.get_or_create(username=name)[0]
        if self.user is not None:
            self.client.force_login(self.user)

    def post(self, path: str, data: Any = None, key: str | None = KEY, method: str = "POST", **more: Any) -> Any:
        body = json.dumps({} if data is None else data)
        return self.send(path, body, "application/json", key=key, method=method, **more)

    def send(
        self, path: str, body: Any, content_type: str, key: str | None = KEY, method: str = "POST", **more: Any
    ) -> Any:
        keyed = {} if key is None else {"Idempotency-Key": key}
        headers = {**keyed, **more.pop("headers", {})}
        return self.client.generic(method, path, body, content_type, headers=headers, **more)


@contextmanager
def atomic_requests(on: bool = True) -> Iterator[None]:
    """ATOMIC_REQUESTS for the database of this run."""
    before = connection.settings_dict["ATOMIC_REQUESTS"]
    connection.settings_dict["ATOMIC_REQUESTS"] = on
    try:
        yield
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = before


def same_answer(first: Any, second: Any, **more: str) -> bool:
    """Status, every header and every byte, apart from the mark of a replay, which no cache keeps by default."""
    marked = {"Cache-Control": "no-store", **dict(first.items()), "Idempotency-Replayed": "true", **more}
    return (second.status_code, dict(second.items()), second.content) == (first.status_code, marked, first.content)


def stored(told: Any) -> HttpResponse:
    """The stored response that a receipt or an operation's address shows."""
    assert told.status_code == 200, told.content
    shown = told.json()["response"]
    body = b64decode(shown["body"]) if shown["encoding"] == "base64" else (shown["body"] or "").encode()
    response = HttpResponse(body, status=shown["status"])
    for name, value in shown["headers"]:
        response[name] = value
    return response


def bare_wrapper(view: Any) -> Any:
    """A decorator that forgot functools.wraps."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapped


def careful_wrapper(view: Any) -> Any:
    return wraps(view)(bare_wrapper(view))
