"""The steps of the demonstration; each one shows its exchanges and fails where an answer is not the right one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import stripe

from testproject.demo_screen import Screen
from testproject.gateway.signatures import HEADER, sign
from testproject.http import Answer, NoAnswer, exchange, exchange_json
from testproject.servers import Program, Server, kill_workers

ORDER: dict[str, Any] = {"amount": 1200, "currency": "EUR", "customer": "ada"}
CARD: Any = {"amount": 2500, "currency": "eur", "source": "tok_visa"}
DEARER: Any = {**CARD, "amount": 9900}
ALICE = "alice-token"
BOB = "bob-token"
PATIENCE_SECONDS = 30
CLOSED = "no response: the connection was closed"


class Unexpected(Exception):
    """A step did not answer as it should."""


@dataclass
class Walk:
    """Makes the requests and prints them."""

    service: Server
    gateway: Server
    hire: Callable[[], Program]  # starts a Celery worker
    database: str
    total: int = 0  # how many steps there are
    serves: bool = True  # the service stays up when the walk is over, so that its pages can be looked at
    screen: Screen = field(default_factory=Screen)
    worker: Program = field(init=False)  # the Celery worker that was hired
    first: Answer = field(init=False)  # the response to the first payment
    steps: int = 0
    charged_before: int = 0

    def step(self, title: str) -> None:
        self.steps += 1
        self.charged_before = self.charges()
        self.screen.step(self.steps, self.total, title)

    def send(self, path: str, data: Any, *, key: str, token: str = ALICE) -> Answer:
        headers = {"Authorization": f"Token {token}"} if token else {}
        headers["Idempotency-Key"] = f'"{key}"'
        self.screen.request(f"POST {path}", headers, json.dumps(data))
        return exchange_json("POST", self.service.url + path, data, headers=headers, timeout=PATIENCE_SECONDS)

    def post(self, path: str, data: Any, expected: int, *, key: str, token: str = ALICE) -> Answer:
        return self.shown(self.send(path, data, key=key, token=token), expected)

    def get(self, path: str) -> Answer:
        headers = {"Authorization": f"Token {ALICE}"}
        self.screen.request(f"GET {path}", headers, "")
        answer = exchange("GET", self.service.url + path, headers=headers)
        self.screen.response(answer)
        return answer

    def pay(self, data: Any, expected: int, *, key: str, token: str = ALICE) -> Answer:
        return self.post("/payments/", data, expected, key=key, token=token)

    def shown(self, answer: Answer, expected: int) -> Answer:
        self.screen.response(answer)
        check(answer.status == expected, f"step {self.steps} should have answered {expected}, not {answer.status}")
        return answer

    @contextmanager
    def paying_slowly(self, seconds: float, *, key: str) -> Iterator[tuple[dict[str, Any], Future[Answer]]]:
        """A payment that sleeps after its charge, and its answer to come."""
        order = {**ORDER, "simulate": {"sleep": seconds}}
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.send, "/payments/", order, key=key)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while self.charges() == self.charged_before:
                check(time.monotonic() < deadline, "the slow payment never reached the gateway")
                time.sleep(0.05)
            yield order, answer

    def switch(self, meaning: str, **switches: Any) -> None:
        exchange_json("POST", f"{self.gateway.url}/switches", switches)
        self.screen.note(meaning)

    def look_at(self, key: str, path: str) -> None:
        """Print where the admin shows the record of Alice's key, while the service stays up."""
        headers = {"Authorization": f"Token {ALICE}", "Idempotency-Key": key}
        address = f"{self.service.url}/idempotency/keys/?path={path}"
        record = exchange("GET", address, headers=headers).json()["operation_ref"]
        if self.serves:
            page = f"/admin/django_idempotency/idempotencykey/{record}/change/"
            self.screen.look("in the admin (user admin, password admin)", self.service.url + page)

    def charges(self) -> int:
        return len(exchange("GET", f"{self.gateway.url}/ledger").json()["charges"])

    def charged(self, expected: int, meaning: str) -> None:
        """Ask the gateway, the only witness, how often money moved in this step."""
        found = self.charges() - self.charged_before
        times = "1 charge" if found == 1 else f"{found} charges"
        self.screen.fact(f"{times} in this step, says the gateway. {meaning}")
        check(found == expected, f"step {self.steps} should have charged {expected} times, not {found}")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Unexpected(otherwise)


def same_answer(first: Answer, second: Answer) -> None:
    check(first.body == second.body, "the replay should have had the same bytes")
    check(second.headers["Idempotency-Replayed"] == "true", "the replay should have said that it is one")


def code_of(answer: Answer) -> str:
    return str(answer.json()["code"])


def pay(walk: Walk) -> None:
    walk.step("Alice pays 12.00 EUR.")
    walk.first = walk.pay(ORDER, 201, key="order-1")
    walk.charged(1, "As it should be.")


def pay_again(walk: Walk) -> None:
    walk.step(
        "Her phone missed the response and sends the request again: first as it was, then with its members reordered."
    )
    for order in (ORDER, dict(reversed(ORDER.items()))):
        same_answer(walk.first, walk.pay(order, 201, key="order-1"))
    walk.charged(0, "She got the stored response, byte for byte.")


def pay_otherwise(walk: Walk) -> None:
    walk.step("The same key with another amount is a mistake, and nothing is done.")
    walk.pay({**ORDER, "amount": 9900}, 422, key="order-1")
    walk.charged(0, "The first payment is as it was.")


def pay_while_it_runs(walk: Walk) -> None:
    walk.step("A payment takes two seconds; meanwhile she sends it again, and once more when it has ended.")
    walk.screen.note('"simulate" belongs to this walk: it makes the service sleep or die in the middle')
    with walk.paying_slowly(2, key="order-2") as (order, first):
        early = walk.pay(order, 409, key="order-2")
        check("Retry-After" in early.headers, "the 409 should have said when to come back")
        answer = walk.shown(first.result(), 201)
    same_answer(answer, walk.pay(order, 201, key="order-2"))
    walk.charged(1, "The second request did not wait, the third got the stored response.")


def pay_as_bob(walk: Walk) -> None:
    walk.step("Bob uses the key that Alice used.")
    walk.pay(ORDER, 201, key="order-1", token=BOB)
    walk.charged(1, "His key is his own, and so is his payment.")


def be_nobody(walk: Walk) -> None:
    walk.step("A client without a token tries Alice's key.")
    walk.pay(ORDER, 401, key="order-1", token="")
    walk.charged(0, "Authentication comes first, on replays too.")


def transfer(walk: Walk) -> None:
    walk.step("A transfer touches this database alone: key, bookings and answer are one transaction.")
    body = {"from": "savings", "to": "current", "amount": 5000}
    first, second = (walk.post("/transfers/", body, 201, key="move-1") for _ in range(2))
    same_answer(first, second)
    walk.screen.fact("One reference: the money moved once.")


def pay_with_stripe(walk: Walk) -> None:
    walk.step("Stripe's own client works against /v1/charges.")
    client = stripe.StripeClient("sk_test_alice", base_addresses={"api": walk.service.url}, max_network_retries=0)

    def create(card: Any) -> stripe.Charge:
        call = f'client.v1.charges.create({{"amount": {card["amount"]}, …}}, {{"idempotency_key": "order-1"}})'
        walk.screen.write(call, "    --> ", "          ")
        return client.v1.charges.create(card, options={"idempotency_key": "order-1"})

    found = [create(CARD) for _ in range(2)]
    same = f"twice the same {found[0].object}: {', '.join(charge.id for charge in found)}"
    walk.screen.write(same, "    <-- ", "        ", "green")
    check(found[0].id == found[1].id, "Stripe's client should have got the same charge twice")
    try:
        create(DEARER)
    except stripe.IdempotencyError as error:
        walk.screen.write(f"stripe.IdempotencyError: {error.user_message}", "    <-- ", "        ", "yellow")
    else:
        raise Unexpected("Stripe's client should have raised its IdempotencyError")
    walk.charged(1, "Another profile, the same promise.")


def lose_the_answer(walk: Walk) -> None:
    walk.step("The gateway charges and its response is lost; then her client tries once more.")
    walk.switch("from now on the gateway charges and hangs up before it responds", lose_answer=True)
    walk.pay(ORDER, 504, key="order-3")
    walk.switch("the gateway responds again", lose_answer=False)
    again = walk.pay(ORDER, 409, key="order-3")
    check(code_of(again) == "idempotency_outcome_unknown", "the outcome should have been called unknown")
    walk.charged(1, "The service cannot know of it, so it says so and does not charge again.")
    walk.look_at("order-3", "/payments/")


def crash(walk: Walk) -> None:
    walk.step("A worker is killed with -9 after the charge; her client comes back as often as Retry-After tells it.")
    with walk.paying_slowly(PATIENCE_SECONDS, key="order-4") as (order, first):
        killed = " ".join(map(str, kill_workers(walk.service)))
        walk.screen.note(f"kill -9 {killed}: gunicorn starts other workers")
        check(isinstance(first.exception(), NoAnswer), "the killed worker should not have responded")
        walk.screen.write(CLOSED, "    <-- ", "        ", "red")
    again = walk.pay(order, 409, key="order-4")
    while code_of(again) == "idempotency_key_in_progress":
        with walk.screen.waiting("the lease to expire"):
            time.sleep(int(again.headers["Retry-After"]))
        again = walk.pay(order, 409, key="order-4")
    check(code_of(again) == "idempotency_outcome_unknown", "the outcome should have been called unknown")
    walk.charged(1, "When the lease was over the record became unknown; nothing runs again by itself.")
    walk.look_at("order-4", "/payments/")


def deliver_twice(walk: Walk) -> None:
    walk.step("The gateway delivers one event about the first payment twice, as providers do.")
    charge = {"id": walk.first.json()["charge"], "amount": ORDER["amount"]}
    event = {"id": f"evt_{time.time_ns()}", "type": "charge.succeeded", "charge": charge}
    body = json.dumps(event).encode()
    for _ in range(2):
        headers = {"Content-Type": "application/json", HEADER: sign("whsec_demo", body)}
        walk.screen.request("POST /webhooks/gateway/", headers, body.decode())
        walk.shown(exchange("POST", f"{walk.service.url}/webhooks/gateway/", body=body, headers=headers), 200)
    walk.screen.fact("Accepted twice, booked once: the event's id is stored together with what it booked.")


STEPS = (
    pay,
    pay_again,
    pay_otherwise,
    pay_while_it_runs,
    pay_as_bob,
    be_nobody,
    transfer,
    pay_with_stripe,
    lose_the_answer,
    crash,
    deliver_twice,
)
