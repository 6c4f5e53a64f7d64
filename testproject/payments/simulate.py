"""`"simulate"` in a request's body makes its view slow, makes it fail or kills its process; refused in production."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from rest_framework.exceptions import ValidationError

from testproject.payments.errors import GatewayUnanswered, SimulatedFailure, SimulatedFailureBefore

FAILURES = ("before", "after", "timeout")
EMPTY_STATUSES = (204, 205, 304)


@dataclass(frozen=True)
class Simulation:
    sleep: float = 0
    fail: str = ""
    status: int | None = None
    kill: str = ""

    def fail_before(self) -> None:
        if self.fail == "before":
            raise SimulatedFailureBefore("failed before the effect, as the request asked")

    def pause(self) -> None:
        time.sleep(self.sleep)

    async def apause(self) -> None:
        await asyncio.sleep(self.sleep)

    def fail_after(self) -> None:
        if self.fail == "after":
            raise SimulatedFailure("failed after the effect, as the request asked")
        if self.fail == "timeout":
            raise GatewayUnanswered("the gateway timed out, as the request asked")

    def reach(self, point: str) -> None:
        """kill -9 of this very process, where the request asked for it at this point."""
        if self.kill == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def answer(self, status: int, data: Any) -> tuple[int, Any]:
        """Status and data, as asked for; some statuses carry no data."""
        chosen = self.status or status
        return chosen, None if chosen in EMPTY_STATUSES else data


class SimulationForm(forms.Form):
    sleep = forms.FloatField(min_value=0, max_value=600, required=False)
    fail = forms.ChoiceField(choices=[("", ""), *((name, name) for name in FAILURES)], required=False)
    status = forms.IntegerField(min_value=200, max_value=599, required=False)
    kill = forms.ChoiceField(required=False)

    def __init__(self, wishes: dict[str, Any], points: Collection[str]) -> None:
        super().__init__(wishes)
        self.fields["kill"].choices = [("", ""), *((point, point) for point in points)]  # type: ignore[attr-defined]


def requested(body: Any, points: Collection[str] = ()) -> Simulation:
    """What the body wishes for; `points` are those at which this route lets itself be killed."""
    if "simulate" not in body:
        return Simulation()
    if settings.PRODUCTION:
        raise ValidationError({"simulate": ["This is refused in production."]})
    wishes = body["simulate"]
    form = SimulationForm(wishes if isinstance(wishes, dict) else {"fail": "an object was expected"}, points)
    if not form.is_valid():
        raise ValidationError({"simulate": {name: list(map(str, reasons)) for name, reasons in form.errors.items()}})
    asked = form.cleaned_data
    return Simulation(asked["sleep"] or 0, asked["fail"], asked["status"], asked["kill"])
