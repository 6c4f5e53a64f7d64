"""The provider itself, without HTTP: also what the service uses in process when there is no GATEWAY_URL."""

from __future__ import annotations

from collections.abc import Callable

from testproject.gateway.charges import Charge, Declined, Order
from testproject.gateway.ledger import Ledger
from testproject.gateway.switches import Switches


def nobody(charge: Charge, switches: Switches) -> None:
    """Tell nobody about the charge."""


class Provider:
    def __init__(self, ledger: Ledger, *, announce: Callable[[Charge, Switches], None] = nobody) -> None:
        self.ledger = ledger
        self.switches = Switches()
        self._announce = announce

    def charge(self, order: Order, *, key: str | None = None) -> Charge:
        switches = self.switches
        if switches.refuse:
            raise Declined("your card was declined")
        charge, new = self.ledger.charge(order, key, dedupe=switches.dedupe)
        if new:
            self._announce(charge, switches)
        return charge

    def find(self, key: str) -> list[Charge]:
        return self.ledger.find(key)

    def reset(self) -> None:
        self.switches = Switches()
        self.ledger.clear()
