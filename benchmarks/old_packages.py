"""What the packages that people move from answer: python -m benchmarks.old_packages [PACKAGE …]

Installs each package that docs/how-to/move.md names into an environment of its own, sends it the requests of
tests/kit/recording.py, and compares its responses with tests/http/recorded_responses.json. Fails if one differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = ROOT / "tests" / "http" / "recorded_responses.json"
RECORDED: Final[dict[str, Any]] = json.loads(FILE.read_text())
NO_SUCH_MODE: Final = "exception again, leased"

# How the documentation of each package says to switch it on.
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "drf-idempotencykey": {"APP": "drf_idempotencykey", "MIXIN": "drf_idempotencykey.mixins.DrfIdempotencyKeyMixin"},
    "django-idempotency-key": {
        "LAYER": "idempotency_key.middleware.IdempotencyKeyMiddleware",
        "IDEMPOTENCY_KEY": {"STORAGE": {"CLASS": "idempotency_key.storage.CacheKeyStorage"}},
    },
    "drf-idempotency": {
        "APP": "drf_idempotency",
        "LAYER": "drf_idempotency.middleware.IdempotencyMiddleware",
        "IDEMPOTENCY": {"BACKEND": "drf_idempotency.backends.database.DatabaseBackend"},
    },
}


def serve(package: str) -> None:
    """Set up a project whose view this package protects."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    own = dict(SETTINGS[package])
    apps = ["contenttypes", "auth", "sessions"]
    settings.configure(
        SECRET_KEY="for these requests only",  # noqa: S106
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["testserver"],
        USE_TZ=True,
        INSTALLED_APPS=[f"django.contrib.{app}" for app in apps] + ["rest_framework", *filter(None, [own.get("APP")])],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            *filter(None, [own.get("LAYER")]),
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        **own,
    )
    django.setup()
    call_command("migrate", verbosity=0)


def answer(package: str) -> dict[str, Any]:
    """Return the responses of this package, which is the one that is installed here."""
    serve(package)
    from django.contrib.auth.models import User
    from django.urls import path
    from django.utils.module_loading import import_string

    from tests.kit.recording import Payment, record

    mixin = SETTINGS[package].get("MIXIN")
    view: Any = type("Pay", (*([import_string(mixin)] if mixin else []), Payment), {})
    globals()["urlpatterns"] = [path(where, view.as_view(), name=where) for where in ("pay", "pay/other", "leased")]
    for name in ("alice", "bob"):
        User.objects.create_user(name, password=name)
    return {case: told for case, told in record().items() if case != NO_SUCH_MODE}


def ask(package: str, folder: Path) -> dict[str, Any]:
    """Install the package beside the versions that were recorded, and return its responses."""
    about = RECORDED[package]
    versions = [f"{package}=={about['version']}", f"django=={about['django']}"]
    versions.append(f"djangorestframework=={about['rest_framework']}")
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *versions], check=True)  # noqa: S603
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [python, "-W", "ignore", "-m", "benchmarks.old_packages", "--inside", package]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.old_packages", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(SETTINGS))
    parser.add_argument("--inside", choices=SETTINGS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(answer(options.inside)))
        return 0
    differing = 0
    for package in options.packages or SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            told = ask(package, Path(folder))
        recorded = RECORDED[package]["responses"]
        changed = [case for case in recorded if told.get(case) != recorded[case]]
        print(
            f"{package} {RECORDED[package]['version']}: {len(recorded) - len(changed)} of {len(recorded)} as recorded"
        )
        for case in changed:
            print(f"  {case}\n    recorded  {recorded[case]}\n    now       {told.get(case)}")
        differing += len(changed)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
