"""Views that hand work over are found, and told what is missing; others are left in peace."""

import json
import subprocess
import sys
from typing import Any

import pytest
from django.core.checks import run_checks
from django.views import View

from django_idempotency.checks.deferred import check_deferrals, hands_over
from django_idempotency.http.urlconf import Endpoint
from testproject.servers import ROOT
from tests.checks.deferring_views import OfClass, OfRest, asynchronous, plain, queries
from tests.kit.http import bare_wrapper


@pytest.mark.parametrize(
    ("view", "found"),
    [
        (plain, True),
        (bare_wrapper(plain), True),
        (asynchronous, True),
        (OfClass.as_view(), True),
        (OfRest.as_view(), True),
        (queries, False),
        (View.as_view(), False),
    ],
)
def test_a_view_that_hands_over_is_found(view: Any, found: bool) -> None:
    assert hands_over(Endpoint("", view)) is found


UNUSED_CELERY = """
import json
import sys
import django
from django.conf import settings
apps = ["django.contrib.auth", "django.contrib.contenttypes", "django_idempotency"]
urls, given = "tests.checks.deferring_views", json.loads(sys.argv[1])
settings.configure(INSTALLED_APPS=apps, ROOT_URLCONF=urls, IDEMPOTENCY=given)
django.setup()
from django_idempotency.checks.deferred import check_deferrals
print(*(f"{message.id} {message.msg} {message.hint}" for message in check_deferrals(None)), sep="\\n")
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("given", "wrong"), [("{}", True), ("{'ENQUEUE': None}", False), ("{'ENQUEUE': print}", False)]
)
def test_w029_nobody_is_told(given: str, wrong: bool) -> None:
    """In a process of its own: Celery is installed there and no application is known."""
    said = subprocess.run(
        [sys.executable, "-c", UNUSED_CELERY, json.dumps(given)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert ("django_idempotency.W029 /plain defers work" in said) is wrong
    assert ("idempotency_work" in said) is wrong


@pytest.mark.django_db  # Django asks SQLite what it can do
def test_w029_is_quiet_about_an_entry_that_is_wrong(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.checks.deferring_views"
    settings.IDEMPOTENCY = {"ENQUEUE": "none.such"}
    assert [message.id for message in check_deferrals(None)] == ["django_idempotency.W030"]
    assert "django_idempotency.E003" in {message.id for message in run_checks()}


@pytest.mark.django_db
@pytest.mark.parametrize("given", [None, 5])
def test_w029_is_quiet_about_settings_that_are_none(given: Any, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.checks.deferring_views"
    settings.IDEMPOTENCY = given
    assert "django_idempotency.E001" in {message.id for message in run_checks()}


@pytest.mark.parametrize(("routes", "wrong"), [("tests.checks.deferring_views", True), ("tests.kit.exports", False)])
def test_w030_no_address(routes: str, wrong: bool, settings: Any) -> None:
    settings.ROOT_URLCONF = routes
    settings.IDEMPOTENCY = {"ENQUEUE": print}
    found = check_deferrals(None)
    assert [message.id for message in found] == (["django_idempotency.W030"] if wrong else [])
    assert all(message.hint for message in found)


@pytest.mark.parametrize("routes", [None, "tests.http.described_views"])
def test_who_hands_nothing_over_hears_nothing(routes: str | None, settings: Any) -> None:
    settings.ROOT_URLCONF = routes
    settings.IDEMPOTENCY = {}
    assert check_deferrals(None) == []
