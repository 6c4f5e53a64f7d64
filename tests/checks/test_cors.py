"""What the checks say of django-cors-headers, which is installed for these tests alone."""

from typing import Any

import pytest

from django_idempotency.checks.cors import check_cors
from tests.checks.messages import ids, said

pytest.importorskip("corsheaders", reason="django-cors-headers is not installed")
EXPOSED = ["Idempotency-Replayed", "retry-after", "Location", "Link"]


@pytest.fixture(autouse=True)
def _installed(settings: Any) -> None:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "corsheaders"]
    settings.CORS_ALLOW_HEADERS = ["idempotency-key"]
    settings.CORS_EXPOSE_HEADERS = EXPOSED


def test_headers_that_are_allowed_and_exposed_are_fine() -> None:
    assert said() == []


def test_every_header_is_fine(settings: Any) -> None:
    settings.CORS_ALLOW_HEADERS = settings.CORS_EXPOSE_HEADERS = ["*"]
    assert said() == []


def test_w060_the_defaults_of_the_package_do_not_allow_a_key(settings: Any) -> None:
    del settings.CORS_ALLOW_HEADERS
    (message,) = said()
    assert ids([message]) == ["W060"]
    assert "Idempotency-Key" in message.msg


@pytest.mark.parametrize("name", EXPOSED)
def test_w061_a_header_that_pages_cannot_read(settings: Any, name: str) -> None:
    settings.CORS_EXPOSE_HEADERS = [each for each in EXPOSED if each != name]
    (message,) = said()
    assert ids([message]) == ["W061"]
    assert name.lower() in message.msg.lower()


def test_the_names_of_the_profile_count(settings: Any) -> None:
    settings.IDEMPOTENCY = {"PROFILE": "stripe"}
    (message,) = said()
    assert "Idempotent-Replayed" in message.msg


def test_a_wrong_setting_is_reported_once(settings: Any) -> None:
    settings.IDEMPOTENCY = {"LEASE": "soon"}
    assert list(check_cors(None)) == []
    assert ids(said()) == ["E003"]


def test_projects_without_the_package_are_not_asked(settings: Any) -> None:
    settings.INSTALLED_APPS = [each for each in settings.INSTALLED_APPS if each != "corsheaders"]
    settings.CORS_EXPOSE_HEADERS = []
    assert said() == []
