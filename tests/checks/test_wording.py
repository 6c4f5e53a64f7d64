"""What a developer reads who wrote a wrong setting or policy: what it is, what was meant, and where it is described."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.http import HttpRequest, HttpResponse
from django.urls import path
from pytest_django import Settings
from rest_framework.views import APIView

from django_idempotency.conf import names
from django_idempotency.core.links import DOCUMENTATION
from django_idempotency.decorators import idempotent
from django_idempotency.rest_framework import IdempotentMixin


def checked(settings: Settings, **entries: Any) -> str:
    """What `manage.py check` prints."""
    settings.IDEMPOTENCY = entries
    with pytest.raises(SystemCheckError) as failed:
        call_command("check", stderr=StringIO())
    return str(failed.value)


WRONG = [
    ({"PROFILE": "strype"}, "['PROFILE']: must be one of 'ietf', 'stripe'; it is 'strype'; did you mean 'stripe'?"),
    ({"PROFILE": "a.b"}, "IDEMPOTENCY['PROFILE']: 'a.b' cannot be imported: No module named 'a'."),
    ({"ENQUEUE": "nothing"}, "IDEMPOTENCY['ENQUEUE']: 'nothing' cannot be imported:"),
    ({"SCOPE": "sesion"}, "it is 'sesion'; did you mean 'session'?"),
    ({"MODE": "Atomic"}, "['MODE']: must be one of 'leased', 'atomic'; it is 'Atomic'; did you mean 'atomic'?"),
    ({"SECRETS": {"a": b"short"}}, "IDEMPOTENCY['SECRETS']: secrets['a'] must be at least 16 bytes."),
    ({"TTL": 5}, "IDEMPOTENCY has no entry 'TTL'.\n\tHINT: Did you mean 'RETENTION'?"),
    ({"lease": 5}, "HINT: Did you mean 'LEASE'?"),
    ({"LEASES": 5}, "HINT: Did you mean 'LEASE'?"),
    ({"ZZZ": 5}, "HINT: It must be one of MODE, REQUIRED, LEASE,"),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "expected"), WRONG, ids=[str(each[0]) for each in WRONG])
def test_a_wrong_entry_is_named_and_what_was_meant(settings: Settings, entries: Any, expected: str) -> None:
    assert expected in checked(settings, **entries)


ANCHORS = [("PROFILE", "profile"), ("RETRY_HINT", "retry-hint"), ("TENANT", "tenant")]


@pytest.mark.parametrize(("name", "anchor"), ANCHORS)
def test_a_wrong_value_leads_to_the_entry(settings: Settings, name: str, anchor: str) -> None:
    assert f"Its values: {DOCUMENTATION}reference/settings.html#{anchor} See" in checked(settings, **{name: "?"})


def test_a_short_secret_is_a_wrong_entry_and_not_an_impossible_policy(settings: Settings) -> None:
    assert "(django_idempotency.E003)" in checked(settings, SECRETS={"a": b"short"})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"lease": 5}, r"lease must be a timedelta; it is 5\. Write timedelta\(seconds=5\)\."),
        ({"retention": 1.5}, r"Write timedelta\(seconds=1\.5\)\."),
        ({"ttl": 5}, r"A policy has no argument 'ttl'; did you mean 'retention'\?"),
        ({"timeout": 5}, r"did you mean 'lease'\?"),
        ({"zzz": 5}, r"A policy has no argument 'zzz'; it must be one of after_expiry, anonymous_unprotected,"),
        ({"mode": "atomc"}, r"it is 'atomc'; did you mean 'atomic'\?"),
    ],
)
def test_a_wrong_argument_is_named_and_what_was_meant(arguments: Any, expected: str) -> None:
    with pytest.raises((TypeError, ValueError), match=expected):
        idempotent(**arguments)


def test_other_types_are_not_told_of_seconds() -> None:
    with pytest.raises(TypeError, match=r"lease must be a timedelta; it is 'long'\.$"):
        idempotent(lease="long")
    idempotent(lease=timedelta(seconds=5))


class Listing(IdempotentMixin, APIView):
    @idempotent()
    def helper(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


def test_a_method_that_answers_nothing_is_told_which_do(settings: Settings) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Listing.as_view())]})
    assert "HINT: Decorate post, or put the policy into `idempotency`." in checked(settings)


def test_every_entry_has_an_address_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
    for name in names():
        row = f'| `{name}` <a id="{name.lower().replace("_", "-")}"></a> |'
        assert (row in page) != (f"\n## {name}\n" in page), name
