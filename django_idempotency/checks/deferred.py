"""System checks of views that hand work over: does anybody hear of it, and has it an address?"""

from collections.abc import Iterator, Sequence
from dis import get_instructions
from itertools import pairwise
from types import FunctionType
from typing import Any, Final

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Tags, Warning, register
from django.urls import NoReverseMatch, get_resolver, reverse

from django_idempotency.conf import conf, urlconf
from django_idempotency.flow.messages import sender
from django_idempotency.http.responses import STATUS_ROUTE
from django_idempotency.http.urlconf import Endpoint, endpoints, layers

HANDING_OVER: Final = ("defer", "adefer")


@register(Tags.urls)
def check_deferrals(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W029, W030: the first view found that calls `request.idempotency.defer` stands for all of them."""
    if urlconf() is None:
        return []
    found = next(filter(hands_over, endpoints(get_resolver(urlconf()).url_patterns)), None)
    return [] if found is None else [*_nobody_is_told(found), *_no_address(found)]


def hands_over(endpoint: Endpoint) -> bool:
    methods = (getattr(endpoint.view, name, None) for name in endpoint.handlers.values())
    found = (layer for each in (endpoint.callback, *methods) if each is not None for layer in layers(each))
    return any(isinstance(layer, FunctionType) and _calls_it(layer) for layer in found)


def _calls_it(function: FunctionType) -> bool:
    """Read from the code; a view that hands over through a function of its own is not seen."""
    names = (instruction.argval for instruction in get_instructions(function))
    return any(one == "idempotency" and then in HANDING_OVER for one, then in pairwise(names))


def _nobody_is_told(endpoint: Endpoint) -> Iterator[CheckMessage]:
    try:
        silent = sender() is None and not conf.is_given("ENQUEUE")
    except (ValueError, TypeError):  # E003 or E001 says so
        return
    if silent:
        yield Warning(
            f"/{endpoint.route} defers work, and no worker is told of it: there is no Celery application, and "
            "IDEMPOTENCY has no ENQUEUE.",
            hint="Import your Celery application in the package of your project, name a function in ENQUEUE, or say "
            '{"ENQUEUE": None} and run `manage.py idempotency_work`.',
            id="django_idempotency.W029",
        )


def _no_address(endpoint: Endpoint) -> Iterator[CheckMessage]:
    try:
        reverse(STATUS_ROUTE, args=["reference"])
    except NoReverseMatch:
        yield Warning(
            f"/{endpoint.route} defers work, and there is no address that tells how far it is.",
            hint='Add path("idempotency/", include("django_idempotency.urls")) to your URLs.',
            id="django_idempotency.W030",
        )
