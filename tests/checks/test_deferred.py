"""A project with a registered operation learns what deferred work still needs; one without hears nothing."""

import json
import subprocess
import sys
from typing import Any

import pytest
from django.core.checks import run_checks

from django_idempotency.checks.deferred import check_deferred_work
from django_idempotency.flow import registry
from testproject.servers import ROOT
from tests.kit.registrations import temporary_registrations

WITHOUT_CELERY = """
import json
import sys
import django
from django.conf import settings
apps = ["django.contrib.auth", "django.contrib.contenttypes", "django_idempotency"]
urls, given = "tests.checks.deferring_views", json.loads(sys.argv[1])
settings.configure(INSTALLED_APPS=apps, ROOT_URLCONF=urls, IDEMPOTENCY=given)
django.setup()
from django_idempotency.checks.deferred import check_deferred_work
from django_idempotency.operations import operation
if sys.argv[2] == "registered":
    operation("tests.deferred")(lambda op: None)
print(*(f"{message.id} {message.msg} {message.hint}" for message in check_deferred_work(None)), sep="\\n")
"""


def said_without_celery(given: str, operation: str = "registered") -> str:
    """What the checks say in a process of its own: Celery is installed there, but has no application."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_CELERY, given, operation], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.processes
@pytest.mark.parametrize(
    ("given", "wrong"), [({}, True), ({"ENQUEUE": None}, False), ({"ENQUEUE": "builtins.print"}, False)]
)
def test_w029_no_worker_is_notified(given: dict[str, Any], wrong: bool) -> None:
    said = said_without_celery(json.dumps(given))
    assert ("django_idempotency.W029 The operation 'tests.deferred' is registered" in said) is wrong
    assert ("idempotency_work" in said) is wrong
    assert "django_idempotency.W030 The operation 'tests.deferred' is registered" in said


@pytest.mark.processes
def test_without_an_operation_nothing_can_be_deferred() -> None:
    assert said_without_celery("{}", "none").strip() == ""


@pytest.mark.django_db  # Django asks SQLite what it can do
def test_w029_is_quiet_about_an_entry_that_is_wrong(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.checks.deferring_views"
    settings.IDEMPOTENCY = {"ENQUEUE": "none.such"}
    assert [message.id for message in check_deferred_work(None)] == ["django_idempotency.W030"]
    assert "django_idempotency.E003" in {message.id for message in run_checks()}


@pytest.mark.django_db
@pytest.mark.parametrize("given", [None, 5])
def test_w029_is_quiet_about_settings_that_are_none(given: Any, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.checks.deferring_views"
    settings.IDEMPOTENCY = given
    assert "django_idempotency.E001" in {message.id for message in run_checks()}


@pytest.mark.parametrize(
    ("routes", "wrong"), [("tests.checks.deferring_views", True), ("tests.kit.exports", False), (None, False)]
)
def test_w030_no_address(routes: str | None, wrong: bool, settings: Any) -> None:
    settings.ROOT_URLCONF = routes
    settings.IDEMPOTENCY = {"ENQUEUE": print}
    found = check_deferred_work(None)
    assert [message.id for message in found] == (["django_idempotency.W030"] if wrong else [])
    assert all(message.hint for message in found)


def test_a_project_without_operations_hears_nothing(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.checks.deferring_views"
    settings.IDEMPOTENCY = {}
    with temporary_registrations():
        registry._OPERATIONS.clear()
        assert check_deferred_work(None) == []
    assert check_deferred_work(None)
