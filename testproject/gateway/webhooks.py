"""Telling a service about a charge: signed, as often as the switch says, and again when it asks for that."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from threading import Thread

from testproject.gateway.charges import Charge
from testproject.gateway.signatures import HEADER, sign
from testproject.gateway.switches import Switches
from testproject.http import exchange

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Webhooks:
    secret: str

    def announce(self, charge: Charge, switches: Switches) -> None:
        if switches.webhooks and switches.webhook_url:
            Thread(target=self._deliver, args=(charge, switches), daemon=True).start()

    def _deliver(self, charge: Charge, switches: Switches) -> None:
        body = json.dumps(event(charge)).encode()
        for _ in range(switches.webhooks):
            self._deliver_once(switches.webhook_url, body)

    def _deliver_once(self, url: str, body: bytes) -> None:
        for pause in (*PAUSES, 0):
            if self._accepted(url, body):
                return
            time.sleep(pause)

    def _accepted(self, url: str, body: bytes) -> bool:
        headers = {"Content-Type": "application/json", HEADER: sign(self.secret, body)}
        try:
            return 200 <= exchange("POST", url, body=body, headers=headers).status < 300
        except OSError:
            return False


def event(charge: Charge) -> dict[str, object]:
    return {"id": f"evt_{charge.id}", "type": "charge.succeeded", "charge": charge.as_json()}
