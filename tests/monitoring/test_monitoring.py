"""The dashboard and the alert rules speak of metrics that exist, and of every one of them."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from django_idempotency.contrib import prometheus
from django_idempotency.monitoring.metrics import METRICS, unsubscribe

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
NAME = re.compile(r"api_idempotency_\w+")


def existing() -> set[str]:
    registry = CollectorRegistry()
    prometheus.install(registry, uid="monitoring")
    unsubscribe("monitoring")
    families = {family.name for family in registry.collect()}
    return {f"{name}_total" for name in families} | {f"{name}_bucket" for name in families}


def test_whatever_is_drawn_or_alerted_on_exists() -> None:
    named = {name for path in FOLDER.iterdir() for name in NAME.findall(path.read_text())}
    assert named
    assert named <= existing()


def test_the_dashboard_shows_every_metric() -> None:
    drawn = set(NAME.findall((FOLDER / "grafana.json").read_text()))
    assert {f"{prometheus.convert_name(metric.name)}_total" for metric in METRICS} <= drawn
