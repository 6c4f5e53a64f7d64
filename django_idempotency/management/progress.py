"""How far a maintenance job is: one line of a terminal."""

from collections import Counter
from time import monotonic
from typing import Any, Final

from django.utils.translation import override

from django_idempotency import maintenance
from django_idempotency.maintenance import Bounds
from django_idempotency.monitoring.units import format_interval, format_number

MOST_COUNTED: Final = 100_000  # so that the question stays cheap in a table of any size
_PAUSE: Final = 0.1  # seconds between two pictures


def count_due(job: str, using: str) -> int:
    """Return how many records the job would find, as far as it is worth counting."""
    counts: Counter[str] = getattr(maintenance, job)(Bounds(using, MOST_COUNTED + 1, dry_run=True))
    return counts["due"]


class ProgressLine:
    """Draws the line again while a run goes through its records, ten times a second at most."""

    def __init__(self, terminal: Any, job: str, using: str) -> None:
        self._terminal, self._total = terminal, count_due(job, using)
        self._began, self._drawn = monotonic(), 0.0

    def __call__(self, counts: Counter[str]) -> None:
        now = monotonic()
        if now - self._drawn >= _PAUSE:
            self._drawn = now
            text = describe_progress(sum(counts.values()), self._total, now - self._began)
            self._write(f"{text}\x1b[K\r")  # a line of the log begins in the first column, and replaces this one

    def clear(self) -> None:
        """Take the line back: the counts follow."""
        if self._drawn:
            self._write("\x1b[K")

    def _write(self, text: str) -> None:
        self._terminal.write(text, str, ending="")  # stderr is red otherwise
        self._terminal.flush()


@override("en")
def describe_progress(done: int, total: int, seconds: float) -> str:
    """Return how many records are done, of how many, at what rate, and how long the others will take."""
    text = f"{format_number(done)} of "
    text += f"more than {format_number(MOST_COUNTED)}" if total > MOST_COUNTED else format_number(max(total, done))
    if not done or seconds <= 0:
        return text
    rate = done / seconds
    text += f", {format_number(rate)}/s" if rate >= 1 else f", one in {format_interval(1 / rate)}"
    if done < total <= MOST_COUNTED:
        text += f", {format_interval(max((total - done) / rate, 1))} left"
    return text
