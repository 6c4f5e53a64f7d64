"""The gateway as its own process, over HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from testproject.gateway.charges import Declined, KeyReused, Order, Unanswered, Unreachable
from testproject.gateway.client import HttpGateway
from testproject.gateway.signatures import HEADER, verify
from testproject.servers import Server, free_port, start_gateway
from tests.kit.processes import Client
from tests.kit.threads import at_once, wait_until

pytestmark = pytest.mark.processes

ORDER = {"amount": 900, "currency": "EUR", "customer": "ada"}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start_gateway(tmp_path_factory.mktemp("gateway"))
    yield server
    server.stop()


@pytest.fixture
def gateway(process: Server) -> Client:
    client = Client(process.url)
    assert client.post("/reset").status == 200
    return client


def ledger(gateway: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.get("/ledger").json()["charges"]
    return found


def switch(gateway: Client, **switches: Any) -> None:
    answer = gateway.post("/switches", switches)
    assert answer.status == 200
    assert {name: answer.json()[name] for name in switches} == switches


def test_a_charge_stands_in_the_ledger_with_key_fingerprint_amount_and_time(gateway: Client) -> None:
    answer = gateway.post("/charges", ORDER, key="k1")

    assert answer.status == 201
    assert ledger(gateway) == [answer.json()]
    assert answer.json() | ORDER == answer.json()
    assert answer.json()["key"] == "k1"
    assert answer.json()["fingerprint"] == Order(**ORDER).fingerprint  # type: ignore[arg-type]
    assert answer.json()["time"].endswith("+00:00")


def test_the_same_key_is_the_same_charge(gateway: Client) -> None:
    answers = at_once([lambda: gateway.post("/charges", ORDER, key="k1")] * 10)

    assert {answer.json()["id"] for answer in answers} == {ledger(gateway)[0]["id"]}
    assert len(ledger(gateway)) == 1


def test_without_a_key_every_request_is_a_charge(gateway: Client) -> None:
    assert [gateway.post("/charges", ORDER).status for _ in range(2)] == [201, 201]
    assert len(ledger(gateway)) == 2


def test_switched_off_the_same_key_charges_again(gateway: Client) -> None:
    switch(gateway, dedupe=False)
    for _ in range(2):
        gateway.post("/charges", ORDER, key="k1")
    assert [charge["key"] for charge in ledger(gateway)] == ["k1", "k1"]


def test_charges_are_found_by_their_key(gateway: Client) -> None:
    mine = gateway.post("/charges", ORDER, key="a key/with ümlaut?".encode().decode("latin-1")).json()
    gateway.post("/charges", ORDER, key="other")

    found = HttpGateway(gateway.url, 5).find(mine["key"])
    assert [charge.id for charge in found] == [mine["id"]]
    assert HttpGateway(gateway.url, 5).find("nowhere") == []
    assert gateway.get("/charges").status == 400


def test_it_can_answer_now_and_charge_later(gateway: Client) -> None:
    switch(gateway, late=0.3)

    assert gateway.post("/charges", ORDER, key="k1").status == 504

    assert ledger(gateway) == []
    assert len(wait_until(lambda: ledger(gateway))) == 1


def test_a_truncated_request_is_never_charged(gateway: Client, process: Server) -> None:
    body = json.dumps(ORDER).encode()
    head = f"POST /charges HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) + 1}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", process.port)) as connection:
        connection.sendall(head + body)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert ledger(gateway) == []


@pytest.mark.parametrize("switches", [{"nonsense": 1}, {"webhooks": "2"}], ids=str)
def test_a_wrong_switch_is_refused_and_changes_nothing(gateway: Client, switches: Any) -> None:
    assert gateway.post("/switches", switches).status == 400
    assert gateway.post("/switches", {}).json()["webhooks"] == 0


def test_the_client_tells_what_is_known(gateway: Client) -> None:
    client, order = HttpGateway(gateway.url, 0.5), Order(900, "EUR", "ada")
    assert client.charge(order, key="k1").id == ledger(gateway)[0]["id"]
    with pytest.raises(KeyReused):
        client.charge(Order(1, "EUR", "ada"), key="k1")
    switch(gateway, refuse=True)
    with pytest.raises(Declined):
        client.charge(order)
    switch(gateway, refuse=False, late=60)
    with pytest.raises(Unanswered):
        client.charge(order)
    switch(gateway, late=0, delay=5)
    with pytest.raises(Unanswered):
        client.charge(order)
    with pytest.raises(Unreachable):
        HttpGateway(f"http://127.0.0.1:{free_port()}", 0.5).charge(order)


class Receiver(HTTPServer):
    """Collects webhooks and answers each with the next of its statuses, the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), ReceiverHandler)
        self.statuses = list(statuses)
        self.received: Queue[tuple[bytes, str]] = Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def next(self) -> tuple[bytes, str]:
        return self.received.get(timeout=60)


class ReceiverHandler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if len(self.server.statuses) > 1 else self.server.statuses[0]
        self.send_response(status)
        self.end_headers()
        self.server.received.put((body, self.headers[HEADER]))

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    with Receiver(*getattr(request, "param", (200,))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_charge_is_told_as_often_as_wished_each_time_as_the_same_event(gateway: Client, receiver: Receiver) -> None:
    switch(gateway, webhooks=3, webhook_url=receiver.url)
    charge = gateway.post("/charges", ORDER, key="k1").json()

    deliveries = [receiver.next() for _ in range(3)]

    assert all(verify("whsec_demo", body, signature) for body, signature in deliveries)
    expected = {"id": f"evt_{charge['id']}", "type": "charge.succeeded", "charge": charge}
    assert [json.loads(body) for body, _ in deliveries] == [expected] * 3


def test_a_repeated_or_silent_charge_is_not_told(gateway: Client, receiver: Receiver) -> None:
    switch(gateway, webhooks=0, webhook_url=receiver.url)
    gateway.post("/charges", ORDER, key="silent")
    switch(gateway, webhooks=1)
    for _ in range(2):
        told = gateway.post("/charges", ORDER, key="told").json()
    last = gateway.post("/charges", ORDER, key="last").json()

    ids = {json.loads(receiver.next()[0])["charge"]["id"] for _ in range(2)}
    assert ids == {told["id"], last["id"]}
    assert receiver.received.empty()


@pytest.mark.parametrize("receiver", [(503, 409, 200)], indirect=True)
def test_a_webhook_that_is_not_accepted_comes_again(gateway: Client, receiver: Receiver) -> None:
    switch(gateway, webhooks=1, webhook_url=receiver.url)
    gateway.post("/charges", ORDER)
    assert len({receiver.next()[0] for _ in range(3)}) == 1
