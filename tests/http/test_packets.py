"""A response that MariaDB or MySQL would not take in one statement is treated as one that is too long to store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency.core.replies import ReplyRule
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.kit.http import Person, Ran, same_answer

pytestmark = [
    pytest.mark.urls(__name__),
    pytest.mark.django_db(transaction=True),
    pytest.mark.vendor,
    pytest.mark.skipif(connection.vendor != "mysql", reason="only MariaDB and MySQL limit the length of a statement"),
]
MIB = 1024 * 1024
BODIES = {"far too long": 2 * MIB * b"x", "too long once quoted": 600_000 * b"'", "short enough": 480_000 * b"'"}


def give(request: HttpRequest, name: str) -> HttpResponse:
    User.objects.create(username=f"written {Ran.again()}")
    return HttpResponse(BODIES[name], "application/octet-stream", 201)


WAYS: dict[str, dict[str, str]] = {
    "atomic": {"mode": "atomic"},
    "whole": {"mode": "leased"},
    "late": {"mode": "leased", "transaction": "late"},
}
LONG = ReplyRule(max_body=4 * MIB)
urlpatterns = [path(f"{way}/<name>", idempotent(reply=LONG, **given)(give)) for way, given in WAYS.items()]


@pytest.fixture(autouse=True)
def _small_packets() -> Iterator[None]:
    """New connections have the limit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        (before,) = cursor.fetchone()
        cursor.execute("SET GLOBAL max_allowed_packet = %s", [MIB])
    connection.close()
    yield
    with connection.cursor() as cursor:
        cursor.execute("SET GLOBAL max_allowed_packet = %s", [before])
    connection.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BODIES)
def test_a_response_is_stored_if_the_server_takes_it(way: str, name: str) -> None:
    ada = Person("ada")
    first, again = (ada.post(f"/{way}/{name}") for _ in range(2))
    assert (first.status_code, first.content == BODIES[name]) == (201, True)
    if name == "short enough":
        assert same_answer(first, again)
    else:
        assert again.status_code == 409
        assert again.json()["code"] == "idempotency_response_not_stored"
        assert again.json()["effect"] == "done"
    assert IdempotencyKey.objects.get().status == "completed"
    assert User.objects.filter(username__startswith="written").count() == 1
