"""What an operator has: alerts, the commands that cron runs, the console, and the list of charges at the provider."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

from django.db.models import F

from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from testproject.databases import from_url
from testproject.servers import ROOT, Server, start_gateway, start_service
from tests.browser.browsing import is_complaint, is_strict, launched
from tests.kit.databases import another_alias
from tests.kit.processes import Site, running_site
from tests.kit.threads import actors

LIST = "/admin/django_idempotency/idempotencykey/"
DASHBOARD = f"{LIST}dashboard/"
ALERTS = (files("django_idempotency") / "monitoring" / "alerts.yaml").read_text()
PICTURES = os.environ.get("PICTURES")  # a folder: the walk leaves its pictures there
SIZE = {"width": 1280, "height": 860}


@dataclass
class Shift:
    """One operator and the service that runs while they are on duty."""

    site: Site
    folder: Path
    environment: Mapping[str, str]
    started: list[Server] = field(default_factory=list)

    def run(self, command: str, *arguments: str) -> str:
        """Run a management command in a process of its own, as cron does."""
        found = subprocess.run(
            [sys.executable, "manage.py", command, *arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return found.stdout + found.stderr

    def scrape(self) -> dict[str, float]:
        """Return what the exporter says: each series and its value."""
        lines = self.site.anyone.get("/metrics").body.decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _space, value in pairs}

    def is_above(self, alert: str) -> bool:
        """True if the gauge of the shipped rule is above its threshold."""
        rule = re.search(rf"alert: {alert}\n +expr: max by \(job\) \((.+)\) > (\d+)\n", ALERTS)
        assert rule is not None
        return self.scrape()[rule[1]] > float(rule[2])

    def restart_provider(self) -> None:
        self.started.append(start_gateway(self.folder, port=self.site.gateway.port))

    def restart_service(self, **environment: str) -> None:
        """Deploy the service again on the same port, with other settings."""
        self.site.service.stop()
        self.environment = {**self.environment, **environment}
        service = start(self.folder, self.site, self.environment, port=self.site.service.port)
        self.started.append(service)
        self.site = replace(self.site, service=service)

    def let_pass(self, by: timedelta) -> None:
        """As if everything had happened so much earlier."""
        with actors(1) as (other,):
            other.do(move_back, self.site.database_url, by)


def move_back(database_url: str, by: timedelta) -> None:
    times = ("created_at", "last_run_at", "grace_until", "reconcile_after")
    with another_alias("played", **from_url(database_url, base=ROOT)) as using:
        open_now = IdempotencyKey.objects.using(using).filter(status="unknown")
        open_now.update(**{name: F(name) - by for name in times})
        IdempotencyEvent.objects.using(using).update(at=F("at") - by)


def start(folder: Path, site: Site, environment: Mapping[str, str], port: int) -> Server:
    return start_service(
        folder,
        database_url=site.database_url,
        gateway_url=site.gateway.url,
        port=port,
        workers=1,
        threads=32,
        environment=environment,
    )


@contextmanager
def on_duty(folder: Path, database_url: str, **settings: str) -> Iterator[Shift]:
    settings = {"DJANGO_SETTINGS_MODULE": "tests.browser.served.settings", **settings}
    with running_site(folder, database_url, workers=1, threads=32, environment=settings) as site:
        surroundings = {"DATABASE_URL": database_url, "GATEWAY_URL": site.gateway.url, "TESTPROJECT_VAR": str(folder)}
        shift = Shift(site, folder, {**surroundings, **settings})
        try:
            yield shift
        finally:
            for server in shift.started:
                server.stop()


@contextmanager
def console(url: str) -> Iterator[Any]:
    """A tab in which the operator has logged in. Nothing on its pages may make the browser complain."""
    complaints: list[str] = []
    for chromium in launched():
        page = chromium.new_context(base_url=url, viewport=SIZE).new_page()
        page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        answer = page.goto("/admin/")
        assert is_strict(answer.headers["content-security-policy"])
        page.fill("[name=username]", "admin")
        page.fill("[name=password]", "admin")
        page.click("[type=submit]")
        page.goto(LIST)
        page.click("#toggle-nav-sidebar")
        yield page
        assert complaints == []


def photograph(page: Any, name: str) -> None:
    """Keep a picture for the documentation, if this run is asked for pictures."""
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"incident-{name}.png")
