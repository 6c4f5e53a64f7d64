"""Each request that a page shows with its response is sent to the payments service, which gives that response."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.authtoken.models import Token

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
EXCHANGE = re.compile(r"^```http\n([A-Z]+ .*?)^```\n\n```http\n(HTTP/.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Message:
    first: str
    headers: dict[str, str]
    body: str


def read(text: str) -> Message:
    head, _, body = text.partition("\n\n")
    first, *lines = head.splitlines()
    return Message(first, dict(line.split(": ", 1) for line in lines), body.strip())


def exchanges(text: str) -> Iterator[tuple[Message, Message]]:
    """A block with a request, and right below it one with the response. Others are not played."""
    for request, response in EXCHANGE.findall(text):
        yield read(request), read(response)


def agrees(shown: str, given: str) -> bool:
    """`…` stands for anything."""
    return re.fullmatch(".*?".join(map(re.escape, shown.split("…"))), given, re.DOTALL) is not None


@pytest.mark.django_db
@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if any(exchanges(text))])
def test_the_service_answers_as_the_page_shows(name: str) -> None:
    Token.objects.create(user=User.objects.create_user("alice"), key="alice-token")
    for request, shown in exchanges(PAGES[name]):
        method, address, _ = request.first.split()
        kind = request.headers.get("Content-Type", "application/octet-stream")
        given = Client().generic(method, address, request.body.encode(), kind, headers=request.headers)
        assert f"HTTP/1.1 {given.status_code} {given.reason_phrase}" == shown.first, given.content
        for header, value in shown.headers.items():
            assert agrees(value, given.headers.get(header, "")), (header, given.headers)
        assert agrees(shown.body, given.content.decode()), given.content


def test_a_page_that_shows_something_else_is_noticed() -> None:
    assert agrees('{"id":…}', '{"id":7}')
    assert not agrees('{"id":…}', '{"no":7}')
