"""Sentry and structlog, with their own packages, get what the guide says: errors as events, warnings as breadcrumbs."""

import json
import logging
import logging.config
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_idempotency import maintenance
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Inconclusive, reconciler
from tests.kit.records import OPERATION, doubtful

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("registrations")]
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "monitor.md"
SECRET = "4242 4242 4242 4242"


class Collecting(Transport):
    """Sentry's own way out of the process ends here."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(event)


@pytest.fixture
def sentry() -> Iterator[Collecting]:
    transport = Collecting()
    with sentry_sdk.isolation_scope():
        sentry_sdk.init(dsn="http://public@127.0.0.1:9/1", transport=transport, auto_enabling_integrations=False)
        yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def one_try(settings: Any) -> None:
    settings.IDEMPOTENCY = {"RECONCILE_TRIES": 1}


def give_up() -> IdempotencyKey:
    """The only check is inconclusive."""
    reconciler(OPERATION)(lambda record: Inconclusive())
    attempt = doubtful()
    IdempotencyKey.objects.update(reconcile_after=attempt_time(attempt))
    maintenance.reconcile()
    return IdempotencyKey.objects.get(status="dead_letter")


def attempt_time(attempt: Any) -> Any:
    return IdempotencyKey.objects.get(id=attempt.call.id).created_at


@pytest.mark.usefixtures("one_try")
def test_sentry_reports_a_dead_letter_after_the_warning_that_led_to_it(sentry: Collecting) -> None:
    record = give_up()
    (event,) = sentry.events
    assert event["level"] == "error"
    assert str(record.id) in event["logentry"]["formatted"]
    assert str(record.id) not in event["logentry"]["message"], "one issue for all records"
    crumbs = [each["message"] for each in event["breadcrumbs"]["values"] if each["category"] == "django_idempotency"]
    assert any("is unknown" in crumb and str(record.id) in crumb for crumb in crumbs)
    assert record.key not in json.dumps(event, default=str)


@pytest.mark.usefixtures("one_try")
def test_structlog_renders_the_lines_as_the_guide_configures_it(capsys: pytest.CaptureFixture[str]) -> None:
    record = give_up_with(configuration_of_the_guide())
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    (dead,) = [line for line in lines if line["level"] == "error"]
    assert dead["logger"] == "django_idempotency"
    assert str(record.id) in dead["event"]


def configuration_of_the_guide() -> dict[str, Any]:
    (block,) = re.findall(r"```python\n(import structlog.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102 - a sample of the project's own documentation
    return dict(names["LOGGING"])


def give_up_with(configuration: dict[str, Any]) -> IdempotencyKey:
    logger = logging.getLogger("django_idempotency")
    before = logger.handlers[:], logger.level, logger.propagate
    logging.config.dictConfig(configuration)
    try:
        return give_up()
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
