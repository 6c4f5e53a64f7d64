"""The provider as the service sees it: over HTTP, or in process where no URL is given."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from testproject.gateway.charges import Charge, Declined, Gateway, KeyReused, Order, Unanswered, Unreachable
from testproject.gateway.ledger import Ledger
from testproject.gateway.provider import Provider
from testproject.http import Answer, NoAnswer, NotConnected, exchange_json


@dataclass(frozen=True)
class HttpGateway:
    url: str
    timeout: float

    def charge(self, order: Order, *, key: str | None = None) -> Charge:
        headers = {"Idempotency-Key": key} if key else {}
        answer = self._ask("POST", "/charges", asdict(order), headers)
        if answer.status == 402:
            raise Declined(answer.json()["error"])
        if answer.status == 422:
            raise KeyReused(answer.json()["error"])
        return Charge(**self._expected(answer, 201).json())

    def find(self, key: str) -> list[Charge]:
        answer = self._expected(self._ask("GET", f"/charges?{urlencode({'key': key})}"), 200)
        return [Charge(**charge) for charge in answer.json()["charges"]]

    def _ask(self, method: str, path: str, data: object = None, headers: dict[str, str] | None = None) -> Answer:
        try:
            return exchange_json(method, self.url + path, data, headers=headers, timeout=self.timeout)
        except NotConnected as error:
            raise Unreachable(f"the gateway could not be reached: {error}") from error
        except NoAnswer as error:
            raise Unanswered(f"the gateway did not answer: {error}") from error

    def _expected(self, answer: Answer, status: int) -> Answer:
        if answer.status != status:
            raise Unanswered(f"the gateway answered {answer.status}: {answer.body[:200]!r}")
        return answer


@cache
def in_process(ledger: Path) -> Provider:
    return Provider(Ledger(ledger))


def connect(url: str, *, ledger: Path, timeout: float) -> Gateway:
    return HttpGateway(url.rstrip("/"), timeout) if url else in_process(ledger)
