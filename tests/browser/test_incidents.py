"""Three incidents, each from its alert to a settled record: real processes, and an operator with a browser.

`PICTURES=docs/images python -m pytest -m "" tests/browser/test_incidents.py` takes the pictures of the guide again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from django_idempotency.core.links import docs_url
from testproject.gateway.charges import Charge
from testproject.gateway.signatures import HEADER, sign
from testproject.gateway.webhooks import event
from testproject.http import Answer, NoAnswer, exchange
from testproject.servers import kill_workers
from tests.browser.browsing import playwright
from tests.browser.operating import DASHBOARD, LIST, Shift, console, on_duty, photograph
from tests.kit.processes import Client
from tests.kit.threads import wait_until

pytestmark = pytest.mark.soak

see = playwright.expect
ORDER = {"amount": 12500, "currency": "EUR", "customer": "ada"}
MANY = 51  # one more than IdempotencyUnknownMany allows
JOBS = ("sweep", "resume", "reap", "reconcile")
RUNS = 120  # from 100 on an operation has a p99

Begin = Callable[..., Shift]


@pytest.fixture(scope="module")
def database(own_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with own_database("incidents") as url:
        yield url


@pytest.fixture
def begin(tmp_path: Path, database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Begin]:
    with ExitStack() as stack:
        stack.enter_context(django_db_blocker.unblock())
        yield lambda **settings: stack.enter_context(on_duty(tmp_path, database, **settings))


def pay(client: Client, key: str, **simulate: Any) -> Answer:
    body = {**ORDER, "simulate": simulate} if simulate else ORDER
    return client.post("/payments/", body, key=f'"{key}"')


def find(page: Any, key: str) -> None:
    """Paste the key into the search of the list, and open the record."""
    page.goto(LIST)
    page.fill("#searchbar", key)
    page.get_by_role("button", name="Search").click()
    page.locator("#result_list .field-shown_key a").click()


def test_the_provider_is_down(begin: Begin) -> None:
    shift = begin()
    alice = shift.site.alice
    shift.site.switch(lose_answer=True)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: pay(alice, f"outage-{number:02}"), range(MANY)))
    assert {answer.status for answer in answers} == {504}
    shift.site.gateway.stop()
    shift.run("idempotency_reconcile")
    shift.let_pass(timedelta(minutes=70))  # of outage; then the next checks fail as well
    for job in JOBS:
        shift.run(f"idempotency_{job}")
    assert shift.is_above("IdempotencyUnknownMany")
    assert shift.is_above("IdempotencyUnknownOld")

    with console(shift.site.service.url) as page:
        page.goto(DASHBOARD)
        photograph(page, "outage-dashboard")
        page.get_by_role("link", name=re.compile(f"The oldest of {MANY} unknown outcomes")).click()
        see(page.locator("#result_list tbody tr")).to_have_count(50)
        page.locator("#result_list .field-shown_key a").first.click()
        see(page.locator(".idem-next")).to_contain_text(re.compile(r"reconciler check .* \(try 3 of 10\)"))
        see(page.locator(".idem-timeline")).to_contain_text("the gateway could not be reached")
        photograph(page, "outage-record")

        shift.restart_provider()
        page.get_by_role("link", name="Ask the reconciler now").click()
        page.fill("[name=reason]", "The provider's status page says that it is back.")
        page.locator(".submit-row [type=submit]").click()
        see(page.locator("h1 .idem-status")).to_have_text("completed")
        page.goto(f"{LIST}?status=unknown")
        page.locator("#action-toggle").check()
        page.locator("select[name=action]").select_option("ask-reconciler")
        page.get_by_role("button", name="Run").or_(page.get_by_role("button", name="Go")).click()
        page.fill("[name=reason]", "The provider is back.")
        page.locator(".submit-row [type=submit]").click()
        see(page.locator(".messagelist li")).to_have_count(1)
        see(page.locator("#result_list tbody tr")).to_have_count(0)

    wait_until(lambda: not shift.is_above("IdempotencyUnknownMany"))
    assert not shift.is_above("IdempotencyUnknownOld")
    assert pay(alice, "outage-00").status == 201
    assert len(shift.site.charges()) == MANY


def test_a_worker_is_lost(begin: Begin) -> None:
    shift = begin(IDEMPOTENCY_LEASE_SECONDS="2")
    alice = shift.site.alice
    assert pay(alice, "worker-1").status == 201
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(pay, alice, "worker-2", sleep=30)
        wait_until(lambda: len(shift.site.charges()) == 2)
        assert kill_workers(shift.site.service)
        assert isinstance(lost.exception(), NoAnswer)
    wait_until(lambda: "unknown" in shift.run("idempotency_sweep"))
    wait_until(lambda: shift.scrape()['api_idempotency_open{state="unknown"}'] == 1)
    assert pay(alice, "worker-2", sleep=30).status == 409

    with console(shift.site.service.url) as page:
        find(page, "worker-2")
        see(page.locator("h1 .idem-status")).to_have_text("unknown")
        prefix = page.locator(".idem-downstream code").last.inner_text()
        (charge,) = (each for each in shift.site.charges() if each["key"].startswith(prefix))
        photograph(page, "worker-record")

        payment = add_payment(shift, charge)
        page.get_by_role("link", name="Mark as succeeded").click()
        response = json.loads(page.input_value("[name=body]"))
        assert set(response) == {"id", "amount", "currency", "customer", "charge", "created_at", "settled_at"}
        page.fill("[name=headers]", f"Location: /payments/{payment['id']}/")
        page.fill("[name=body]", json.dumps(payment))
        page.fill("[name=reason]", f"The provider lists {charge['id']} for this key.")
        page.get_by_role("button", name="Show what the client will get").click()
        see(page.locator(".idem-preview")).to_contain_text("201 Created")
        photograph(page, "worker-response")
        page.locator(".submit-row [type=submit]").first.click()
        see(page.locator("h1 .idem-status")).to_have_text("completed")
        see(page.locator(".idem-timeline")).to_contain_text(f"The provider lists {charge['id']}")

    retried = pay(alice, "worker-2", sleep=30)
    assert (retried.status, retried.json()) == (201, payment)
    assert retried.headers["Idempotency-Replayed"] == "true"
    assert len(shift.site.charges()) == 2


def add_payment(shift: Shift, charge: dict[str, Any]) -> dict[str, Any]:
    """Make the domain write that the lost worker did not get to, and return what the service says of it."""
    code = (
        "from testproject.payments.models import Payment; from django.contrib.auth.models import User; "
        f"Payment.objects.create(owner=User.objects.get(username='alice'), charge={charge['id']!r}, **{ORDER!r})"
    )
    shift.run("shell", "-c", code)
    (payment,) = (each for each in shift.site.alice.get("/payments/").json() if each["charge"] == charge["id"])
    return dict(payment)


def tell(shift: Shift, charge: dict[str, Any]) -> None:
    """Deliver the provider's webhook about a charge."""
    body = json.dumps(event(Charge(**charge))).encode()
    headers = {"Content-Type": "application/json", HEADER: sign("whsec_demo", body)}
    assert exchange("POST", f"{shift.site.service.url}/webhooks/gateway/", body=body, headers=headers).status == 200


def test_a_lease_is_too_short(begin: Begin) -> None:
    shift = begin(IDEMPOTENCY_LEASE_SECONDS="5")
    alice = shift.site.alice
    with ThreadPoolExecutor(24) as pool:
        slow = pool.submit(pay, alice, "lease-slow", sleep=15)
        wait_until(shift.site.charges)
        runs = [pool.submit(pay, alice, f"lease-{number}", sleep=1.8) for number in range(RUNS)]
        wait_until(lambda: "outcome_unknown" in pay(alice, "lease-slow", sleep=15).body.decode())
        tell(shift, shift.site.charges()[0])
        assert {run.result().status for run in runs} == {201}
        slow.result()
    wait_until(lambda: "lost its lease" in shift.site.service.log.read_text())
    for job in JOBS:
        shift.run(f"idempotency_{job}")
    assert docs_url("reference/findings", "lease-short") in shift.run("idempotency_doctor")

    with console(shift.site.service.url) as page:
        page.goto(DASHBOARD)
        finding = page.get_by_role("link", name=re.compile("payments.create has a lease of 5 s, but its p99 is"))
        see(finding).to_be_visible()
        what_to_do = page.locator("#problems + ul li", has=finding).get_by_role("link", name="What to do")
        assert what_to_do.get_attribute("href") == docs_url("reference/findings", "lease-short")
        finding.click()
        page.locator("#durations").scroll_into_view_if_needed()
        photograph(page, "lease-dashboard")
        find(page, "lease-slow")
        see(page.locator("h1 .idem-status")).to_have_text("completed")
        see(page.locator(".idem-timeline")).to_contain_text("longer than the lease of 5 s")
        photograph(page, "lease-record")

    shift.restart_service(IDEMPOTENCY_LEASE_SECONDS="30")
    assert pay(alice, "lease-slow", sleep=15).status == 201
    assert pay(alice, "lease-after").status == 201
    assert "lease-short" not in shift.run("idempotency_doctor")
    assert len(shift.site.charges()) == RUNS + 2
