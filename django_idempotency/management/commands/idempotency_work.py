import signal
from argparse import ArgumentParser
from threading import Event
from typing import Any

from django.db import Error, close_old_connections

from django_idempotency.maintenance import Bounds, work
from django_idempotency.management.base import DutyCommand, check_seconds
from django_idempotency.signals import logger


class Command(DutyCommand):
    help = "Perform the deferred operations that are due: a worker that needs no message broker."
    duty = staticmethod(work)

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--forever", action="store_true", help="look again and again, until SIGTERM or SIGINT")
        parser.add_argument("--every", type=float, default=5.0, help="with --forever: seconds between two looks")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["forever"]:
            super().handle(*args, **options)
            return
        check_seconds(options, "every")
        ending = Event()
        for each in (signal.SIGTERM, signal.SIGINT):  # the operation that runs is finished first
            signal.signal(each, lambda *received: ending.set())
        bounds = self.bounds(options, stopped=ending.is_set)
        while not ending.is_set():
            self._look(bounds, options)
            ending.wait(options["every"])

    def _look(self, bounds: Bounds, options: dict[str, Any]) -> None:
        close_old_connections()
        try:
            counts = work(bounds)
        except Error:  # gone, or read-only after a failover: it comes back, and so does this worker
            logger.exception("The database does not answer, or not as it should; the worker looks again later.")
            return
        if counts:
            self.say(counts, options)
