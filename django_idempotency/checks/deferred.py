"""System checks of deferred work: is a worker notified of it, and has its status an address?

A registered operation is what work is deferred to, so these checks ask whether one is registered. Whether a view defers
it cannot be seen without running the view.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Warning
from django.urls import NoReverseMatch, reverse

from django_idempotency.conf import conf, urlconf
from django_idempotency.flow.messages import sender
from django_idempotency.flow.registry import known_operations
from django_idempotency.http.responses import STATUS_ROUTE


def check_deferred_work(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W029, W030: the first registered operation stands for all of them."""
    name = min(known_operations(), default=None)
    return [] if name is None else [*_no_worker_notified(name), *_no_status_address(name)]


def _no_worker_notified(name: str) -> Iterator[CheckMessage]:
    try:
        silent = sender() is None and not conf.is_given("ENQUEUE")
    except (ValueError, TypeError):  # reported as E003 or E001
        return
    if silent:
        yield Warning(
            f"The operation {name!r} is registered, but no worker is notified of deferred work: there is no Celery "
            "application, and IDEMPOTENCY has no entry ENQUEUE.",
            hint="Import your Celery application in your project's package, or name a function in ENQUEUE. If "
            "`manage.py idempotency_work` does the work, or if you only run operations and defer none, set "
            '{"ENQUEUE": None}.',
            id="django_idempotency.W029",
        )


def _no_status_address(name: str) -> Iterator[CheckMessage]:
    if urlconf() is None:
        return
    try:
        reverse(STATUS_ROUTE, args=["reference"])
    except NoReverseMatch:
        yield Warning(
            f"The operation {name!r} is registered, but the status of deferred work has no address.",
            hint='Add path("idempotency/", include("django_idempotency.urls")) to your URLs. If no view defers work, '
            "silence this check.",
            id="django_idempotency.W030",
        )
