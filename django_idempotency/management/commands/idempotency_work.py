import signal
from argparse import ArgumentParser
from dataclasses import replace
from math import inf
from threading import Event
from time import monotonic
from typing import Any, ClassVar

from django.db import Error, close_old_connections
from django.utils.translation import override

from django_idempotency.maintenance import Bounds, work
from django_idempotency.management.base import check_seconds
from django_idempotency.management.jobs import JobCommand
from django_idempotency.monitoring.units import format_interval
from django_idempotency.signals import logger


class Command(JobCommand):
    job = "work"
    examples: ClassVar[tuple[str, ...]] = ("--max-runtime 50", "--forever", "--forever --every 1 --max-runtime 3600")

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--forever", action="store_true", help="keep looking for work until SIGTERM or SIGINT")
        parser.add_argument(
            "--every", type=float, default=5.0, help="with --forever: seconds between two looks; 5 by default"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["forever"]:
            super().handle(*args, **options)
            return
        check_seconds(options, "every")
        ending = Event()
        for each in (signal.SIGTERM, signal.SIGINT):  # the running operation is finished first
            signal.signal(each, lambda *received: ending.set())
        bounds = self.make_bounds(options, stopped=ending.is_set)
        until = inf if bounds.max_runtime is None else monotonic() + bounds.max_runtime
        if not options["json"]:
            self.say(describe_wait(options["every"], bounds.max_runtime))
        while not ending.is_set() and (left := until - monotonic()) > 0:
            self._look(bounds if left == inf else replace(bounds, max_runtime=left), options)
            ending.wait(max(min(options["every"], until - monotonic()), 0))

    def _look(self, bounds: Bounds, options: dict[str, Any]) -> None:
        close_old_connections()
        try:
            counts = work(bounds)
        except Error:  # an outage or, after a failover, a read-only server: it passes
            logger.exception("The database did not answer, or reported an error; the worker looks again later.")
            return
        if counts:
            self.write_counts(counts, options)


@override("en")
def describe_wait(every: float, max_runtime: float | None) -> str:
    """Return what a worker that keeps looking does, and what ends it."""
    how_long = "" if max_runtime is None else f" for {format_interval(max_runtime)}"
    pause = f"every {format_interval(every)}" if every >= 1 else "without a pause"
    return f"Looking for work {pause}{how_long}. Ctrl-C or SIGTERM stops after the operation that is running."
