"""The shipped alerts and dashboard: real tools load them, and they use metrics that exist and pages that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from django_idempotency.contrib import prometheus
from django_idempotency.core.links import docs_url
from django_idempotency.monitoring.metrics import METRICS, unsubscribe
from testproject.http import exchange
from testproject.servers import free_port
from tests.kit.records import change, dead_letter

SHIPPED = Path(str(files("django_idempotency"))) / "monitoring"
RULES, DASHBOARD = SHIPPED / "alerts.yaml", SHIPPED / "grafana.json"
RUNBOOKS = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "runbooks.md"
NAME = re.compile(r"api_idempotency_\w+")
SECONDS = 30
VARIABLES = {"$job": ".*", "$operation": ".*", "$__rate_interval": "5m"}


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    made = CollectorRegistry()
    prometheus.install(made, uid="monitoring")
    yield made
    unsubscribe("monitoring")


def alerts() -> dict[str, str]:
    """The runbook of each alert."""
    return dict(re.findall(r"- alert: (\w+)$.*?runbook_url: (\S+)$", RULES.read_text(), re.MULTILINE | re.DOTALL))


def expressions() -> list[str]:
    """What the dashboard asks, with its variables filled in."""
    found = re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', DASHBOARD.read_text())
    asked = [json.loads(f'"{each}"') for each in found]
    for variable, value in VARIABLES.items():
        asked = [each.replace(variable, value) for each in asked]
    return asked


@pytest.mark.django_db
def test_whatever_is_drawn_or_alerted_on_exists(registry: CollectorRegistry) -> None:
    families = {family.name for family in registry.collect()}
    existing = {*families, *(f"{name}{end}" for name in families for end in ("_total", "_bucket"))}
    named = {name for path in (RULES, DASHBOARD) for name in NAME.findall(path.read_text())}
    assert named
    assert named <= existing


def test_the_dashboard_shows_every_metric() -> None:
    drawn = set(NAME.findall(DASHBOARD.read_text()))
    assert {f"{prometheus.convert_name(metric.name)}_total" for metric in METRICS} <= drawn
    assert {family.name for family in prometheus.RecordsCollector().describe()} <= drawn


def test_each_alert_has_a_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert alerts() == {name: docs_url("how-to/runbooks", name.lower()) for name in sections}


def test_grafana_knows_every_member_of_the_dashboard() -> None:
    """Its own models read the dashboard, and what they do not know would be missing from what they write."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    written = json.loads(DASHBOARD.read_text())
    understood = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert list(find_lost(written, understood)) == []
    assert list(find_lost({**written, "tittle": ""}, understood)) == ["/tittle"]
    assert all(panel["description"] for panel in written["panels"])


def find_lost(written: Any, understood: Any, place: str = "") -> Iterator[str]:
    """Where one differs from the other; what was added is not looked at."""
    if isinstance(written, dict):
        for name, value in written.items():
            if name not in understood:
                yield f"{place}/{name}"
            else:
                yield from find_lost(value, understood[name], f"{place}/{name}")
    elif isinstance(written, list):
        assert len(written) == len(understood), place
        for number, (one, other) in enumerate(zip(written, understood, strict=True)):
            yield from find_lost(one, other, f"{place}/{number}")
    elif written != understood:
        yield place


@contextmanager
def running_prometheus(folder: Path, target: int) -> Iterator[Callable[[str], Any]]:
    """A server that loads the rules and looks at the target each second. Yields how to ask it."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on this machine (apt install prometheus): the alerts were not loaded by a server")
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "tests", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    address = f"127.0.0.1:{free_port()}"
    command = [
        program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--log.level=error",
    ]  # fmt: skip

    def ask(path: str) -> Any:
        return exchange("GET", f"http://{address}/api/v1/{path}").json()["data"]

    with subprocess.Popen(command) as process:
        try:
            wait_until(lambda: exchange("GET", f"http://{address}/-/ready").status == 200)
            yield ask
        finally:
            process.terminate()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = monotonic() + SECONDS
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        assert monotonic() < deadline, "it did not happen in time"
        sleep(0.1)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_dead_letter_alerts_until_it_is_settled(tmp_path: Path, registry: CollectorRegistry) -> None:
    attempt = dead_letter()
    server, thread = start_http_server(port := free_port(), addr="127.0.0.1", registry=registry)
    try:
        with running_prometheus(tmp_path, port) as ask:

            def firing() -> set[str]:
                return {each["labels"]["alertname"] for each in ask("alerts")["alerts"] if each["state"] == "firing"}

            wait_until(lambda: "IdempotencyDeadLetters" in firing())
            (group,) = ask("rules")["groups"]
            assert {rule["name"] for rule in group["rules"]} == set(alerts())
            wait_until(lambda: {rule["health"] for rule in ask("rules")["groups"][0]["rules"]} == {"ok"})
            for expression in expressions():
                assert ask(f"query?query={quote(expression, safe='')}")["resultType"] == "vector"
            change(attempt, status="failed_retryable")
            wait_until(lambda: "IdempotencyDeadLetters" not in firing())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.processes
def test_promtool_plays_the_alerts(tmp_path: Path) -> None:
    """An alert fires when its cause begins, lasts for as long as the cause, and ends with it."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine (apt install prometheus): the alerts were not played")
    played = Path(__file__).parent / "alerts_played.yaml"
    text = played.read_text().replace("RULES", str(RULES))
    (tmp_path / "played.yaml").write_text(text)
    subprocess.run([program, "check", "rules", RULES], check=True)
    subprocess.run([program, "test", "rules", tmp_path / "played.yaml"], check=True)
    assert set(alerts()) == set(re.findall(r'alertname="(\w+)"', text)), "each alert is played"
