"""A project that is installed as a package itself, as an image with `pip install .` has it, and run from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
SECRET_KEY, USE_TZ, ROOT_URLCONF = "secret", True, "{urls}"
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "django_idempotency"
]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "{database}"}}}}
"""
VIEWS = """
from django.http import JsonResponse
from itertools import count

RUNS = count(1)


def order(request):
    return JsonResponse({"run": next(RUNS)}, status=201)
"""
ROUTES = """
from django.urls import path
from django_idempotency.protection import protect_all
from {views} import order

urlpatterns = protect_all([path("orders/", order)], mode="atomic", share_anonymous=True)
"""
RUN = """
import json, django
django.setup()
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
call_command("migrate", verbosity=0)
header = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
answers = [Client().post("/orders/", headers=header).content.decode() for _ in range(2)]
try:
    call_command("idempotency_endpoints", "--fail-unprotected", "--json")
    failure = ""
except CommandError as error:
    failure = str(error)
print(json.dumps([answers, failure]))
"""
INCLUDE = 'from django.urls import include, path\n\nurlpatterns = [path("", include("{routes}"))]\n'


class Project:
    """Modules in a folder named site-packages, and the distribution that brought them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site-packages"
        self.modules: list[str] = []

    def add(self, module: str, source: str) -> None:
        path = self.site.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in path.parents:
            if package == self.site:
                break
            (package / "__init__.py").touch()
        path.write_text(source)
        self.modules.append(path.relative_to(self.site).as_posix())

    def install(self, *, settings: str, urls: str) -> None:
        self.add(settings, SETTINGS.format(urls=urls, database=self.folder / "db.sqlite3"))
        info = self.site / "our_shop-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-shop\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{module},,\n" for module in self.modules))
        self.settings = settings

    def run(self, code: str = RUN) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": f"{self.site}:{ROOT}", "DJANGO_SETTINGS_MODULE": self.settings}
        return subprocess.run(
            [sys.executable, "-c", code], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def outcome(self) -> Any:
        done = self.run()
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


LAYOUTS = {
    "one package": ("shop.settings", "shop.urls", "shop.urls", "shop.views"),
    "views beside the settings": ("config.settings", "config.urls", "config.urls", "orders.views"),
    "routes beside the views": ("config.settings", "config.urls", "api.routes", "api.views"),
    "routes of one package, views of another": ("config.settings", "config.urls", "api.routes", "orders.views"),
    "a module without a package": ("settings", "urls", "urls", "views"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_views_of_an_installed_project_are_protected(project: Project, layout: str) -> None:
    settings, urls, routes, views = LAYOUTS[layout]
    project.add(views, VIEWS)
    project.add(routes, ROUTES.format(views=views))
    if urls != routes:
        project.add(urls, INCLUDE.format(routes=routes))
    project.install(settings=settings, urls=urls)
    assert project.outcome() == [['{"run": 1}', '{"run": 1}'], ""]


def test_an_unprotected_view_of_an_installed_project_fails_the_build(project: Project) -> None:
    project.add("orders.views", VIEWS)
    source = 'from django.urls import path\nfrom orders.views import order\n\nurlpatterns = [path("orders/", order)]\n'
    project.add("config.urls", source)
    project.install(settings="config.settings", urls="config.urls")
    answers, failure = project.outcome()
    assert answers == ['{"run": 1}', '{"run": 2}']
    assert failure.startswith("Unprotected endpoints (1): any /orders/.")


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        ("[]", "The list is empty."),
        ('[path("login/", LoginView.as_view())]', "packages=['django.contrib.auth']"),
        ('[path("orders/", require_safe(order))]', "/orders/"),
    ],
)
def test_protecting_nothing_is_a_mistake(project: Project, patterns: str, said: str) -> None:
    project.add("orders.views", VIEWS)
    source = (
        "from django.contrib.auth.views import LoginView\nfrom django.urls import path\n"
        "from django.views.decorators.http import require_safe\nfrom orders.views import order\n"
        "from django_idempotency.protection import protect_all\n\n"
        f"urlpatterns = protect_all({patterns}, mode='atomic')\n"
    )
    project.add("config.urls", source)
    project.install(settings="config.settings", urls="config.urls")
    done = project.run()
    assert done.returncode != 0
    assert "Misplaced: protect_all protected no view." in done.stderr
    assert said in done.stderr.rpartition("Misplaced: ")[2]
