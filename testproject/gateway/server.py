"""The provider over HTTP."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Timer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from testproject.gateway.charges import Declined, GatewayError, KeyReused, Order
from testproject.gateway.provider import Provider

ERRORS: dict[type[GatewayError], HTTPStatus] = {
    Declined: HTTPStatus.PAYMENT_REQUIRED,
    KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
}


class GatewayServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, provider: Provider, *, host: str = "127.0.0.1") -> None:
        super().__init__((host, port), GatewayHandler)
        self.provider = provider
        self.received: list[Order] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class GatewayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: GatewayServer

    def do_GET(self) -> None:
        self._route(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or "Transfer-Encoding" in self.headers:
            return self._answer(HTTPStatus.LENGTH_REQUIRED, {"error": "send a Content-Length"}, close=True)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return self._hang_up()
        return self._route(body)

    def charge(self, body: bytes) -> None:
        """POST /charges"""
        order = Order(**json.loads(body))
        self.server.received.append(order)
        key = self.headers.get("Idempotency-Key")
        switches = self.server.provider.switches
        if switches.late:
            self._charge_later(switches.late, order, key)
            return self._answer(HTTPStatus.GATEWAY_TIMEOUT, {"error": "the bank has not answered yet"})
        time.sleep(switches.delay)
        charge = self.server.provider.charge(order, key=key)
        if switches.lose_answer:
            return self._hang_up()
        return self._answer(HTTPStatus.CREATED, charge.as_json())

    def find(self, _body: bytes) -> None:
        """GET /charges?key=…"""
        keys = parse_qs(urlsplit(self.path).query).get("key", [])
        if len(keys) != 1:
            raise ValueError("ask for one key: /charges?key=…")
        charges = self.server.provider.find(keys[0])
        self._answer(HTTPStatus.OK, {"charges": [charge.as_json() for charge in charges]})

    def orders(self, _body: bytes) -> None:
        """GET /orders: every order that arrived, charged or not"""
        self._answer(HTTPStatus.OK, {"orders": [vars(order) for order in self.server.received]})

    def ledger(self, _body: bytes) -> None:
        """GET /ledger"""
        charges = self.server.provider.ledger.charges()
        self._answer(HTTPStatus.OK, {"charges": [charge.as_json() for charge in charges]})

    def switch(self, body: bytes) -> None:
        """POST /switches"""
        provider = self.server.provider
        provider.switches = provider.switches.changed(json.loads(body))
        self._answer(HTTPStatus.OK, vars(provider.switches))

    def reset(self, _body: bytes) -> None:
        """POST /reset"""
        self.server.provider.reset()
        self.server.received.clear()
        self._answer(HTTPStatus.OK, vars(self.server.provider.switches))

    routes: ClassVar[dict[tuple[str, str], Callable[[GatewayHandler, bytes], None]]] = {
        ("POST", "/charges"): charge,
        ("GET", "/charges"): find,
        ("GET", "/orders"): orders,
        ("GET", "/ledger"): ledger,
        ("POST", "/switches"): switch,
        ("POST", "/reset"): reset,
    }

    def _route(self, body: bytes) -> None:
        route = self.routes.get((self.command, urlsplit(self.path).path))
        if route is None:
            return self._answer(HTTPStatus.NOT_FOUND, {"error": f"there is no {self.command} {self.path}"})
        try:
            return route(self, body)
        except GatewayError as error:
            return self._answer(ERRORS[type(error)], {"error": str(error)})
        except (ValueError, TypeError, AttributeError) as error:
            return self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def _charge_later(self, seconds: float, order: Order, key: str | None) -> None:
        timer = Timer(seconds, self._charge_late, (order, key))
        timer.daemon = True
        timer.start()

    def _charge_late(self, order: Order, key: str | None) -> None:
        # Nobody waits for this answer any more, so a refusal has no one to reach.
        try:
            self.server.provider.charge(order, key=key)
        except GatewayError as error:
            self.log_error("late charge refused: %s", error)

    def _answer(self, status: HTTPStatus, data: Any, *, close: bool = False) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """The ledger is the log."""
