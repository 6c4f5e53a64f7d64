"""What the views of the how-to guides do when they are requested."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.test import RequestFactory

from tests.kit.http import KEY
from tests.repository.test_samples import PAGES, run

pytestmark = pytest.mark.django_db

Names = dict[str, Any]


@pytest.fixture
def shown() -> Callable[[str], Names]:
    """What the blocks of a guide define."""
    return lambda guide: run(guide, PAGES[f"docs/how-to/{guide}.md"])


def a_request(user: Any, method: str = "POST") -> HttpRequest:
    request = RequestFactory().generic(method, "/", headers={"Idempotency-Key": KEY})
    request.user = user
    return request


@pytest.mark.parametrize(
    ("user", "status"),
    [(AnonymousUser(), 403), (User(username="root"), 403), (User(username="ada@example.com"), 201)],
    ids=str,
)
def test_a_caller_without_a_tenant_is_refused(shown: Callable[[str], Names], user: Any, status: int) -> None:
    assert shown("scope")["create"](a_request(user)).status_code == status


WRITING = [
    ("stripe-downstream", "pay"),
    ("async", "pay"),
    ("expired-keys", "pay"),
    ("expired-keys", "pay_within_a_year"),
    ("plain-django", "create"),
    ("external-calls", "pay"),
    ("several-databases", "order"),
]


@pytest.mark.parametrize(("guide", "name"), WRITING)
def test_a_view_that_writes_answers_no_method_that_is_not_protected(
    shown: Callable[[str], Names], guide: str, name: str
) -> None:
    view = shown(guide)[name]
    answer = async_to_sync(view) if iscoroutinefunction(view) else view
    methods = ("GET", "PUT", "DELETE")
    assert [answer(a_request(User(pk=1), method)).status_code for method in methods] == [405, 405, 405]
