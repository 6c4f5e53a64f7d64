"""Django masks the CSRF token of a form anew for each page, so it is no part of what the form means."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpRequest, HttpResponse
from django.test.client import encode_multipart
from django.urls import path

from django_idempotency.decorators import idempotent
from tests.kit.http import KEY, Person, Ran, same_answer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]

Form = Callable[[Mapping[str, Any]], tuple[bytes, str]]
TOKEN = "csrfmiddlewaretoken"


@idempotent
def order(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{Ran.again()}: {sorted(request.POST)}", status=201)


urlpatterns = [path("order", order)]


def urlencoded(fields: Mapping[str, Any]) -> tuple[bytes, str]:
    return urlencode(fields, doseq=True).encode(), "application/x-www-form-urlencoded"


def multipart(fields: Mapping[str, Any]) -> tuple[bytes, str]:
    return encode_multipart("x", dict(fields)), "multipart/form-data; boundary=x"


FORMS = pytest.mark.parametrize("form", [urlencoded, multipart])
ORDER = {"amount": "5", TOKEN: "one"}


@FORMS
@pytest.mark.parametrize(
    "again",
    [
        {"amount": "5", TOKEN: "another"},
        {TOKEN: "one", "amount": "5"},
        {"amount": "5", TOKEN: ["one", "and more"]},
        {"amount": "5", TOKEN: ""},
        {"amount": "5"},
    ],
)
def test_another_token_or_none_is_the_same_request(alice: Person, form: Form, again: Any) -> None:
    first = alice.send("/order", *form(ORDER))
    assert first.status_code == 201
    assert TOKEN.encode() in first.content, "the view still finds it"
    assert same_answer(first, alice.send("/order", *form(again)))


@FORMS
@pytest.mark.parametrize(
    "other",
    [
        {"amount": "6", TOKEN: "one"},
        {"amount": "5", TOKEN: "one", "note": ""},
        {"amount": "5", TOKEN.upper(): "one"},
        {"amount": "5", f"{TOKEN}2": "one"},
        {"amount": "5", f"x{TOKEN}": "one"},
    ],
)
def test_every_other_field_counts(alice: Person, form: Form, other: Any) -> None:
    assert alice.send("/order", *form(ORDER)).status_code == 201
    assert alice.send("/order", *form(other)).status_code == 422


@FORMS
def test_a_form_of_nothing_but_a_token_and_a_key_can_be_repeated(alice: Person, form: Form) -> None:
    first = alice.send("/order", *form({TOKEN: "one", "_idempotency_key": KEY}), key=None)
    assert first.status_code == 201
    assert same_answer(first, alice.send("/order", *form({TOKEN: "two", "_idempotency_key": KEY}), key=None))


@FORMS
def test_a_key_means_the_same_in_the_header_and_in_the_form(alice: Person, form: Form) -> None:
    first = alice.send("/order", *form(ORDER), key=KEY)
    assert first.status_code == 201
    assert same_answer(first, alice.send("/order", *form({**ORDER, "_idempotency_key": KEY}), key=None))


@pytest.mark.parametrize("name", ["csrfmiddleware%74oken", "csrf%6diddlewaretoken"])
def test_a_name_is_what_the_parser_makes_of_it(alice: Person, name: str) -> None:
    _, kind = urlencoded({})
    first = alice.send("/order", b"amount=5", kind)
    assert same_answer(first, alice.send("/order", f"amount=5&{name}=x", kind))


Sent = Callable[[str], tuple[str, bytes, str]]


def in_json(token: str) -> tuple[str, bytes, str]:
    return "/order", json.dumps({TOKEN: token}).encode(), "application/json"


def in_plain_text(token: str) -> tuple[str, bytes, str]:
    return "/order", f"{TOKEN}={token}".encode(), "text/plain"


def in_the_query(token: str) -> tuple[str, bytes, str]:
    return f"/order?{TOKEN}={token}", *urlencoded({})


def as_a_file(token: str) -> tuple[str, bytes, str]:
    return "/order", *multipart({TOKEN: SimpleUploadedFile("token", token.encode())})


@pytest.mark.parametrize("sent", [in_json, in_plain_text, in_the_query, as_a_file])
def test_what_is_no_field_of_a_form_counts_whatever_its_name(alice: Person, sent: Sent) -> None:
    assert alice.send(*sent("one")).status_code == 201
    assert alice.send(*sent("another")).status_code == 422
