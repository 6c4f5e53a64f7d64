"""Every metric is moved by the event it names, in both backends."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.dispatch import Signal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from django_idempotency import json_reply, signals
from django_idempotency.contrib import opentelemetry, prometheus
from django_idempotency.core.calls import Call
from django_idempotency.flow import claim, finish, run
from django_idempotency.monitoring.metrics import METRICS, PREFIX, Metric, unsubscribe
from tests.kit import calls
from tests.kit.records import age

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "signals.md"
PAYLOADS = {
    getattr(signals, name): payload.replace("`", "").split(", ")
    for name, payload in re.findall(r"^\| `(\w+)` \| (`[^|]+`) \|", PAGE.read_text(), re.MULTILINE)
}


def a_call(body: bytes = b"{}", key: str = "k", **policy: Any) -> Call:
    return calls.a_call(key, body=body, operation="tests.metrics", **policy)


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    made = CollectorRegistry()
    prometheus.install(made, uid="tests")
    yield made
    unsubscribe("tests")


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    made = InMemoryMetricReader()
    opentelemetry.install(MeterProvider([made]), uid="tests")
    yield made
    unsubscribe("tests")


def counted(registry: CollectorRegistry, name: str, operation: str = "tests.metrics") -> float:
    return registry.get_sample_value(f"{prometheus.convert_name(name)}_total", {"operation": operation}) or 0.0


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_each_signal_moves_its_metric_and_no_other(registry: CollectorRegistry, metric: Metric) -> None:
    for signal in metric.moved_by:
        before = counted(registry, metric.name)
        signals.announce(signal, call=a_call(), using="default")
        assert counted(registry, metric.name) == before + 1


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_what_is_counted_without_an_operation_begins_at_0(registry: CollectorRegistry, metric: Metric) -> None:
    bare = any("call" not in PAYLOADS[signal] for signal in metric.moved_by)
    begun = registry.get_sample_value(f"{prometheus.convert_name(metric.name)}_total", {"operation": ""})
    assert begun == (0.0 if bare else None)


def test_no_metric_is_fed_by_what_is_not_a_signal_of_ours() -> None:
    ours = {id(value) for value in vars(signals).values() if isinstance(value, Signal)}
    assert {id(signal) for metric in METRICS for signal in metric.moved_by} <= ours


@pytest.mark.django_db
@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_real_calls_move_them(registry: CollectorRegistry, mode: str) -> None:
    reply = json_reply(201, {})
    run.run_call(a_call(mode=mode), lambda attempt: (None, reply))
    run.run_call(a_call(mode=mode), lambda attempt: (None, reply))
    run.run_call(a_call(b"[]", mode=mode), lambda attempt: (None, reply))
    moved = {each.name: counted(registry, each.name) for each in METRICS}
    assert {name: value for name, value in moved.items() if value} == {
        "reserve.created": 1,
        "reserve.replay": 1,
        "reserve.key_misuse": 1,
    }
    name = "api_idempotency_handler_duration_seconds_count"
    assert registry.get_sample_value(name, {"operation": "tests.metrics"}) == 1


@pytest.mark.django_db
def test_a_doubt_and_a_lapse_move_theirs(registry: CollectorRegistry) -> None:
    finish.doubt(calls.claimed(a_call()), "test")
    claim.begin(a_call())
    age(calls.claimed(a_call(key="other")), "locked_until")
    claim.begin(a_call(key="other"))
    assert counted(registry, "reserve.unknown") == 2
    assert counted(registry, "reconcile.scheduled") == counted(registry, "reconcile.scheduled", "") == 1
    assert counted(registry, "zombie_key", "") == 1


def test_opentelemetry_counts_the_same(reader: InMemoryMetricReader) -> None:
    signals.announce(signals.pruned, count=7, using="default")
    signals.announce(signals.completed, call=a_call(), reply=json_reply(200, {}), seconds=0.5, using="default")
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data.data_points[0]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found[PREFIX + "ttl_pruned"].value == 7  # type: ignore[union-attr]
    assert found[PREFIX + "handler.duration"].sum == 0.5  # type: ignore[union-attr]
    assert found[PREFIX + "handler.duration"].attributes == {"operation": "tests.metrics"}


COUNT_IN_A_PROCESS = """
import sys
import django; django.setup()
from django_idempotency.contrib import prometheus
from django_idempotency import signals
prometheus.install()
for _ in range(int(sys.argv[1])):
    signals.announce(signals.pruned, count=2, using="default")
"""


def environment_of_many(folder: Path, variable: str = "PROMETHEUS_MULTIPROC_DIR") -> dict[str, str]:
    return {
        **os.environ,
        variable: str(folder),
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
    }


@pytest.mark.processes
@pytest.mark.parametrize("variable", ["PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"])
def test_a_process_that_counts_nothing_leaves_no_file(tmp_path: Path, variable: str) -> None:
    environment = environment_of_many(tmp_path, variable)
    subprocess.run([sys.executable, "-c", COUNT_IN_A_PROCESS, "0"], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
    subprocess.run([sys.executable, "-c", COUNT_IN_A_PROCESS, "1"], env=environment, check=True)
    assert list(tmp_path.iterdir()) != []


@pytest.mark.processes
def test_prometheus_adds_up_over_processes(tmp_path: Path) -> None:
    environment = environment_of_many(tmp_path)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", COUNT_IN_A_PROCESS, "3"], env=environment, check=True)
    ask = (
        "from prometheus_client import CollectorRegistry, multiprocess, generate_latest\n"
        "r = CollectorRegistry(); multiprocess.MultiProcessCollector(r); print(generate_latest(r).decode())"
    )
    said = subprocess.run([sys.executable, "-c", ask], env=environment, check=True, capture_output=True, text=True)
    assert 'api_idempotency_ttl_pruned_total{operation=""} 12.0' in said.stdout
    assert 'api_idempotency_reconcile_dead_letter_total{operation=""} 0.0' in said.stdout


def test_a_key_is_never_a_label(registry: CollectorRegistry) -> None:
    secret = str(uuid4())
    signals.announce(signals.replayed, call=a_call(key=secret), using="default")
    assert not any(secret in str(sample) for family in registry.collect() for sample in family.samples)
