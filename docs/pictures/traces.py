"""Run the four flows of docs/contributing/architecture.md on SQLite, and write down which modules they go through."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE, VIEWS = str(ROOT / "django_idempotency"), str(ROOT / "testproject" / "payments")
YOURS, DATABASE = "your code", "database"
UNTOLD: Final = {"simulate", "killing", "json_bodies"}  # how the demonstration misbehaves on request
STATEMENT: Final = re.compile(
    r"(BEGIN|COMMIT|ROLLBACK)|(INSERT|UPDATE|DELETE|SELECT).*?\b(?:idempotency|payments)_(\w+)", re.DOTALL
)
OTHERS: Final = ("COV", "CELERY_", "DATABASE_", "DJANGO_", "GATEWAY_", "IDEMPOTENCY_")  # they would change the flows
TABLES: Final = {"key": "the record", "event": "the audit trail", "job_run": "the run of the job"}


class Line(NamedTuple):
    """The first time that an act of a flow enters a module, or one statement."""

    module: str
    does: str


class Trace:
    """One act: the modules in the order in which it enters them, and the statements in between."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        module = module_of(frame)
        if event != "call" or module is None or frame.f_code.co_name.startswith("<"):
            return
        line = Line(module, said(frame))
        if line not in self.lines and (module == YOURS or module not in {each.module for each in self.lines}):
            self.lines.append(line)

    def statement(self, text: str) -> None:
        found = STATEMENT.match(text.strip())
        if found and within_the_package(sys._getframe()):
            word, verb, table = found.groups()
            self.lines.append(Line(DATABASE, word or f"{verb} {TABLES.get(table, table)}"))

    @contextmanager
    def recording(self) -> Iterator[None]:
        from django.db import connection

        connection.ensure_connection()
        connection.connection.set_trace_callback(self.statement)
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            connection.connection.set_trace_callback(None)


def module_of(frame: FrameType) -> str | None:
    """The module's name within the package, or whose it is; None for any other code."""
    file = frame.f_code.co_filename
    if file.startswith(VIEWS):
        return YOURS if Path(file).stem not in UNTOLD else None
    if not file.startswith(PACKAGE):
        return None
    return file[len(PACKAGE) + 1 : -len(".py")].replace(os.sep, ".").removesuffix(".__init__")


def said(frame: FrameType) -> str:
    """The function's name, or the class that it makes."""
    name = frame.f_code.co_name
    return frame.f_code.co_qualname.split(".")[-2] if name in ("__init__", "__post_init__") else name


def within_the_package(frame: FrameType | None) -> bool:
    while frame is not None and module_of(frame) is None:
        frame = frame.f_back
    return frame is not None


def flows() -> dict[str, dict[str, list[Line]]]:
    """Every flow with its acts, traced in a process of its own."""
    command = [sys.executable, "-m", "docs.pictures.traces"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)  # noqa: S603 - ours
    found: dict[str, dict[str, list[Any]]] = json.loads(done.stdout)
    return {flow: {act: [Line(*line) for line in lines] for act, lines in acts.items()} for flow, acts in found.items()}


def traced(act: Callable[[], object]) -> list[Line]:
    trace = Trace()
    with trace.recording():
        act()
    return trace.lines


class Customer:
    """Somebody who sends requests to the payments service."""

    def __init__(self) -> None:
        from django.contrib.auth.models import User
        from django.test import Client
        from rest_framework.authtoken.models import Token

        user = User.objects.create(username="carol")
        self._headers = {"Authorization": f"Token {Token.objects.create(user=user).key}"}
        self._client = Client(SERVER_NAME="localhost")

    def post(self, path: str, key: str, body: Any) -> Any:
        headers = {**self._headers, "Idempotency-Key": f'"{key}"'}
        return self._client.post(path, json.dumps(body), "application/json", headers=headers)

    def get(self, path: str) -> Any:
        return self._client.get(path, headers=self._headers)


def trace_all() -> dict[str, dict[str, list[Line]]]:
    """Each flow twice: the first run makes policies and connections, which every later one finds made."""
    from testproject.stories import gateway, quiet

    customer = Customer()
    with quiet(), gateway() as provider:
        for key in ("first", "second"):
            found = {
                "new-request": new_request(customer, key),
                "replay": replay(customer, key),
                "deferred": deferred(customer, key),
                "unknown": unknown(customer, provider, key),
            }
    return found


def new_request(customer: Customer, key: str) -> dict[str, list[Line]]:
    from testproject.stories import ORDER

    return {"POST with a new key": traced(lambda: customer.post("/payments/", key, ORDER))}


def replay(customer: Customer, key: str) -> dict[str, list[Line]]:
    from testproject.stories import ORDER

    return {"POST with the same key": traced(lambda: customer.post("/payments/", key, ORDER))}


def deferred(customer: Customer, key: str) -> dict[str, list[Line]]:
    from celery import current_app

    answers: list[Any] = []
    perform = current_app.tasks["django_idempotency.run_operation"]
    accept = traced(lambda: answers.append(customer.post("/exports/", key, {"page": 100})))
    (answer,) = answers
    return {
        "accept: POST answers 202": accept,
        "perform: a worker takes it up": traced(lambda: perform.apply((answer.json()["operation_ref"],))),
        "poll: GET answers 201": traced(lambda: customer.get(answer.headers["Location"])),
    }


def unknown(customer: Customer, provider: Any, key: str) -> dict[str, list[Line]]:
    from celery import current_app

    from testproject.stories import press

    reconcile = current_app.tasks["django_idempotency.reconcile_unknown"]
    doubtful(customer, provider, f"{key} for the reconciler")
    by_reconciler = traced(reconcile.apply)
    record = doubtful(customer, provider, f"{key} for the operator")
    answer = {"status": "201", "content_type": "application/json", "body": "{}"}
    by_operator = traced(lambda: press("resolve-landed", record, "The bank confirms the charge.", **answer))
    return {"the reconciler asks the provider": by_reconciler, "an operator confirms it in the admin": by_operator}


def doubtful(customer: Customer, provider: Any, key: str) -> Any:
    """A record whose outcome is unknown and which the reconciler may ask about."""
    from django_idempotency.models import IdempotencyKey
    from django_idempotency.testing import grace_over
    from testproject.gateway.switches import Switches
    from testproject.stories import ORDER

    provider.switches = Switches(lose_answer=True)
    customer.post("/payments/", key, ORDER)
    provider.switches = Switches()
    record = IdempotencyKey.objects.get(key=key)
    grace_over(record)
    return record


def main() -> int:
    """Print the traces as JSON."""
    with TemporaryDirectory() as folder:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/traces.sqlite3"
        os.environ.update(DJANGO_SETTINGS_MODULE="testproject.settings", TESTPROJECT_VAR=folder)
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        json.dump(trace_all(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
