"""Anybody who has the key of an anonymous caller gets the response: who may not see contents sees its beginning."""

from __future__ import annotations

import pytest

from django_idempotency import Status
from tests.kit.console import LIST, act, client_of, page_of, person, record

pytestmark = pytest.mark.django_db

KEY = "3f0c7a86-7d4e-4b0e-9a51-d4c8b1f2e6aa"


@pytest.mark.parametrize("rights", [(), ("view_content",)])
def test_a_key_without_credentials_is_content(rights: tuple[str, ...]) -> None:
    found = record(Status.COMPLETED, KEY, principal="anonymous")
    near = record(Status.COMPLETED, "of-the-same-operation", principal="anonymous")
    client = client_of(person("ada", "expire_now", *rights))
    begun = [LIST + f"?q={KEY[:length]}" for length in (8, 20)]
    pages = [LIST, page_of(found), page_of(near), act("expire-now", found), *begun]
    shown = {address for address in pages if KEY in client.get(address).content.decode()}
    assert shown == (set(pages) if rights else set())


@pytest.mark.parametrize("rights", [(), ("view_content",)])
def test_what_is_shown_of_a_hidden_key_is_not_offered_as_the_key(rights: tuple[str, ...]) -> None:
    found = record(Status.COMPLETED, KEY, principal="anonymous")
    client = client_of(person("ada", *rights))
    for address in (LIST, page_of(found)):
        page = client.get(address).content.decode()
        assert ("Copy the key" in page) is bool(rights), address
        assert ("whole key" in page) is not bool(rights), address


def test_the_keys_of_known_callers_are_shown() -> None:
    record(Status.COMPLETED, KEY, principal="user:7")
    assert KEY in client_of(person("ada")).get(LIST + f"?q={KEY[:8]}").content.decode()


def test_a_hidden_key_cannot_be_found_out_by_searching() -> None:
    record(Status.COMPLETED, KEY, principal="anonymous")
    client = client_of(person("ada"))
    found = {length: bool(client.get(LIST + f"?q={KEY[:length]}").context["cl"].result_list) for length in (8, 36)}
    assert found == {8: False, 36: True}
