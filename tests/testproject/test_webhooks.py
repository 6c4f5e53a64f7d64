from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

from testproject.gateway.signatures import HEADER, sign
from testproject.http import Answer
from tests.kit.processes import Site
from tests.kit.threads import at_once, wait_until

PATH = "/webhooks/gateway/"
SECRET = "whsec_demo"
BARE = {"id": "ch_1", "amount": 5, "key": "k"}
ORDER = {"amount": 700, "currency": "EUR", "customer": "ada"}


def event(**changes: Any) -> bytes:
    data = {"id": f"evt_{time.time_ns()}", "type": "charge.succeeded", "charge": {"id": "ch_1", "amount": 5}}
    return json.dumps({**data, **changes}).encode()


def deliver(site: Site, body: bytes, signature: str) -> Answer:
    return site.anyone.post_bytes(PATH, body, **{"Content-Type": "application/json", HEADER: signature})


def bookings(site: Site, reference: str) -> int:
    return len(site.rows("SELECT id FROM payments_ledgerentry WHERE reference = %s", reference))


def test_the_gateways_own_webhook_is_booked(site: Site) -> None:
    site.switch(webhooks=1, webhook_url=site.service.url + PATH)

    paid = site.alice.post("/payments/", ORDER).json()

    assert wait_until(lambda: bookings(site, f"evt_{paid['charge']}")) == 1


def test_a_signed_event_settles_its_payment(site: Site) -> None:
    paid = site.alice.post("/payments/", ORDER).json()
    body = event(charge={"id": paid["charge"], "amount": 700})

    answer = deliver(site, body, sign(SECRET, body))

    assert (answer.status, answer.json()) == (200, {"received": json.loads(body)["id"]})
    assert site.alice.get(f"/payments/{paid['id']}/").json()["settled_at"] is not None


def test_an_event_delivered_twice_is_booked_once(site: Site) -> None:
    body = event()

    assert [deliver(site, body, sign(SECRET, body)).status for _ in range(2)] == [200, 200]

    assert bookings(site, json.loads(body)["id"]) == 1


def test_an_event_delivered_many_times_at_once_is_booked_once(site: Site) -> None:
    body = event()

    answers = at_once([partial(deliver, site, body, sign(SECRET, body))] * 20)

    statuses = {answer.status for answer in answers}
    assert 200 in statuses
    assert statuses <= {200, 503}, "booked, or to be delivered again"
    assert {answer.headers["Retry-After"] for answer in answers if answer.status == 503} <= {"2"}
    assert deliver(site, body, sign(SECRET, body)).json() == {"received": json.loads(body)["id"]}
    assert bookings(site, json.loads(body)["id"]) == 1


def test_an_event_about_a_request_that_is_running_is_to_be_delivered_again(site: Site) -> None:
    with ThreadPoolExecutor(1) as pool:
        paying = pool.submit(site.alice.post, "/payments/", {**ORDER, "simulate": {"sleep": 1.5}})
        (charge,) = wait_until(site.charges)
        body = event(charge=charge)
        early = deliver(site, body, sign(SECRET, body))
        paid = paying.result()

    assert (early.status, early.headers["Retry-After"]) == (503, "2")
    assert (paid.status, bookings(site, json.loads(body)["id"])) == (201, 0)
    assert deliver(site, body, sign(SECRET, body)).status == 200
    assert bookings(site, json.loads(body)["id"]) == 1
    assert site.rows("SELECT COUNT(*) FROM payments_payment WHERE charge = %s", charge["id"]) == [(1,)]


def test_a_wrong_signature_is_refused(site: Site) -> None:
    body, now = event(), int(time.time())
    wrong = ["", "nonsense", sign("another secret", body), sign(SECRET, b"another body"), sign(SECRET, body, now - 310)]
    assert [deliver(site, body, signature).status for signature in wrong] == [403] * len(wrong)
    assert bookings(site, json.loads(body)["id"]) == 0
    assert deliver(site, body, sign(SECRET, body, now - 290)).status == 200, "it counts for five minutes"


def test_an_event_that_cannot_be_understood_is_refused(site: Site) -> None:
    wrong = {
        "no JSON": b"{",
        "no id": event(id=""),
        "another type": event(type="charge.failed"),
        "no charge": event(charge={}),
        "a key without its order": event(charge=BARE),
    }
    statuses = {what: deliver(site, body, sign(SECRET, body)).status for what, body in wrong.items()}
    assert statuses == dict.fromkeys(wrong, 400)


def test_an_event_can_be_asked_to_fail(site: Site) -> None:
    body = event(simulate={"fail": "after"})
    assert deliver(site, body, sign(SECRET, body)).status == 500
    assert bookings(site, json.loads(body)["id"]) == 0


def test_an_event_about_a_rides_charge_settles_that_step_and_not_the_ride(site: Site) -> None:
    """The ride's next retry ends it: with a ride's response, its receipt and no payment."""
    body, key = {"origin": "Bonn", "target": "Ulm", "simulate": {"fail": "timeout"}}, f'"{uuid4()}"'
    assert site.alice.post("/rides/", body, key=key).status == 504
    (charge,) = site.charges()
    told = event(charge=charge)

    assert deliver(site, told, sign(SECRET, told)).status == 200

    ended = site.alice.post("/rides/", body, key=key)
    assert (ended.status, ended.json().get("origin"), ended.json()["charge"]) == (201, "Bonn", charge["id"])
    assert site.rows("SELECT COUNT(*) FROM payments_payment WHERE charge = %s", charge["id"]) == [(0,)]
    assert site.rows("SELECT COUNT(*) FROM payments_receipt WHERE ride_id = %s", ended.json()["ride"]) == [(1,)]
    assert len(site.charges()) == 1
