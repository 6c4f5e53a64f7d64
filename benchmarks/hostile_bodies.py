"""Hostile bodies against the same bytes as plain text: python -m benchmarks.hostile_bodies

Measures what happens before the key is looked up: reading the body and making its fingerprint. Prints the time and the
memory of each body as multiples of those of the same bytes sent as text/plain. Needs no database. Ends with 1 if a form
of 2.5 MB takes more than twice the time or 1.5 times the memory in every run.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from typing import Any, Final

from benchmarks.interleaved import Pair, interleave

FORM: Final = "application/x-www-form-urlencoded"
RUNS, ROUNDS, CALLS = 3, 30, 3
SIZE: Final = 2_500_000  # just below Django's limit
MOST_TIME, MOST_MEMORY = 2.0, 1.5
BODIES: Final = {
    "ampersands": b"&" * SIZE,
    "names": b"a&" * (SIZE // 2),
    "percent signs": b"%&" * (SIZE // 2),
    "an encoded name": b"%41" * (SIZE // 3),
    "an encoded value": b"a=" + b"%41" * (SIZE // 3),
    "encoded names of a token's length": (b"%41" * 19 + b"&") * (SIZE // 58),
}


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    import django

    django.setup()
    runs = [measure_run() for _ in range(RUNS)]
    print(f"{'form of 2.5 MB, as multiples of plain text':45}" + "".join(f"  run {run + 1}" for run in range(RUNS)))
    for name in BODIES:
        print(f"{name + ': time':45}" + "".join(f"{run[name][0]:7.2f}" for run in runs))
        print(f"{name + ': memory':45}" + "".join(f"{run[name][1]:7.2f}" for run in runs))
    best = [min(run[name][kind] for run in runs) for name in BODIES for kind in (0, 1)]
    return int(max(best[::2]) > MOST_TIME or max(best[1::2]) > MOST_MEMORY)


def measure_run() -> dict[str, tuple[float, float]]:
    """Return the ratios of time and of memory of every body."""
    pairs = {name: Pair(_bind("text/plain", body), _bind(FORM, body)) for name, body in BODIES.items()}
    interleave(pairs, ROUNDS, CALLS)
    return {name: (pairs[name].ratio, _measure_memory(pairs[name])) for name in BODIES}


def _bind(content_type: str, body: bytes) -> Any:
    from django.test import RequestFactory

    from django_idempotency import Policy
    from django_idempotency.http.requests import call_from

    factory, policy = RequestFactory(), Policy(operation="payments.create")

    def call() -> object:
        request = factory.generic("POST", "/payments/", body, content_type)
        return call_from(request, ["7c1f64a2-6b4e-4a57-9a43-3f2f1c1f8f10"], policy, "user:17")

    return call


def _measure_memory(pair: Pair) -> float:
    peaks = []
    for call in (pair.floor, pair.ours):
        tracemalloc.start()
        call()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return peaks[1] / peaks[0]


if __name__ == "__main__":
    sys.exit(main())
