"""The one place where the service calls the payment provider, never inside a transaction."""

from __future__ import annotations

from django.conf import settings

from testproject.gateway.charges import Charge, Declined, Gateway, KeyReused, Order, Unanswered, Unreachable
from testproject.gateway.client import connect
from testproject.payments.errors import CardDeclined, GatewayUnanswered, GatewayUnreachable


def gateway() -> Gateway:
    return connect(settings.GATEWAY_URL, ledger=settings.GATEWAY_LEDGER, timeout=settings.GATEWAY_TIMEOUT_SECONDS)


def charge(order: Order, *, key: str | None = None) -> Charge:
    try:
        return gateway().charge(order, key=key)
    except (Declined, KeyReused) as error:
        raise CardDeclined(str(error)) from error
    except Unreachable as error:
        raise GatewayUnreachable(str(error)) from error
    except Unanswered as error:
        raise GatewayUnanswered(str(error)) from error
