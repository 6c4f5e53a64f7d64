"""The recipe for graphene-django, as the guide shows it, in an environment of its own.

Graphene and Strawberry need different releases of graphql-core.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import django
import pytest

from tests.kit.environments import make_environment

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "how-to" / "graphql.md"
REQUIREMENTS = ["graphene-django>=3.2.3", f"django=={django.__version__}", "rfc8785", "http-sf"]
SETTINGS = """
SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS, USE_TZ = "for this test only", "shown", ["testserver"], True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"]
INSTALLED_APPS += ["graphene_django", "django_idempotency"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
MIDDLEWARE += ["django.contrib.auth.middleware.AuthenticationMiddleware"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
"""
URLS = """
from django.urls import path

urlpatterns = [path("graphql", graphql)]
"""
PROGRAM = """
import os

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "shown_settings"
django.setup()

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

call_command("migrate", verbosity=0)
client = Client()
client.force_login(User.objects.create(username="ada"))

JSON, FORM, GRAPHQL = "application/json", "application/x-www-form-urlencoded", "application/graphql"


def send(body, key=None, kind=JSON, query=""):
    path = "/graphql" + (f"?query={query}" if query else "")
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(path, {"query": body} if kind == JSON else body, content_type=kind, headers=headers)


def create(name):
    return 'mutation { createGroup(name: "%s") { id } }' % name


# A mutation runs once.
first, second = (send(create("a"), "key-of-the-first-test") for _ in range(2))
assert first.json() == second.json() == {"data": {"createGroup": {"id": Group.objects.get().pk}}}, first.content
assert second["Idempotency-Replayed"] == "true"
assert send(create("b"), "key-of-the-first-test").status_code == 422

# Each form of a mutation needs a key.
for number, (body, kind, query) in enumerate([
    (create("form"), GRAPHQL, ""),
    ("query=" + create("two"), FORM, ""),
    ("", JSON, create("three")),
    ("", "text/plain", create("four")),
]):
    before = Group.objects.count()
    missing = send(body, None, kind, query)
    assert (missing.status_code, missing.json()["code"]) == (400, "idempotency_key_missing"), (kind, missing.content)
    for _ in range(2):
        done = send(body, f"key-of-form-number-{number}", kind, query)
        assert done.status_code == 200 and "errors" not in done.json(), (kind, done.content)
    assert Group.objects.count() == before + 1, kind

# An error is rolled back, with the other mutations of the request, and not replayed.
both = 'mutation { one: createGroup(name: "new") { id } two: createGroup(name: "a") { id } }'
for _ in range(2):
    failed = send(both, "key-of-the-failure")
    assert (failed.status_code, "Idempotency-Replayed" in failed) == (200, False), failed.content
    assert "errors" in failed.json()
assert not Group.objects.filter(name="new").exists()

# What changes nothing needs no key.
for query in ("{ groups }", "query { groups }"):
    assert send(query).status_code == 200
    assert b"idempotency" not in send(query).content

# An upload, and what cannot be read, may be a mutation.
upload = {"operations": '{"query": "%s"}' % create("upload").replace('"', '\\"'), "map": "{}"}
for refused in (client.post("/graphql", upload), send("not GraphQL {"), send("")):
    assert refused.json()["code"] == "idempotency_key_missing", refused.content
"""


def test_the_recipe_works(tmp_path: Path) -> None:
    (block,) = [each for each in GUIDE.read_text().split("```python\n") if "import graphene" in each]
    (tmp_path / "shown.py").write_text(block.partition("```")[0] + URLS)
    (tmp_path / "shown_settings.py").write_text(SETTINGS)
    python = make_environment(tmp_path / "environment", *REQUIREMENTS)

    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
