"""What a fingerprint costs, as multiples of work that cannot be avoided: python -m benchmarks.fingerprints

A body above the canonical limit is compared with SHA-256 of the same bytes, a canonical form with `json.loads` and
`json.dumps` of the same body. Floor and candidate run in turn. Needs no database. Ends with 1 if a body of 1 MB costs
more than 1.5 times its floor, or the canonical form of an order of 10 KB more than twice its own, in every run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from time import process_time
from typing import Any, Final

from benchmarks.interleaved import Pair, interleave

RUNS, ROUNDS, CALLS = 3, 30, 10
MOST_LARGE, MOST_CANONICAL = 1.5, 2.0


def order(lines: int, price: Callable[[int], Any], text: str = "Cotton shirt, blue") -> bytes:
    """An order as shops send it, indented by no one."""
    items = [
        {"sku": f"SKU-{number:06}", "name": f"{text} {number}", "quantity": number % 7 + 1, "price": price(number),
         "gift": number % 5 == 0, "note": None, "options": {"size": "L", "colour": "#0a0b0c"}}
        for number in range(lines)
    ]  # fmt: skip
    customer = {"id": 4711, "name": "Zoë Müller", "address": {"street": "Hauptstraße 1", "city": "Köln"}}
    return json.dumps({"currency": "EUR", "customer": customer, "items": items, "total": 99_90}).encode()


LARGE: Final = order(6900, lambda number: number * 10)
CANONICAL: Final = {
    "order of 10 KB, whole prices": order(68, lambda number: number * 10 + 99),
    "order of 10 KB, decimal prices": order(68, lambda number: number + 0.99),
    "order of 10 KB, very small prices": order(68, lambda number: (number + 1) / 1e6),
    "order of 10 KB, emoji": order(60, lambda number: number * 10, "Cotton shirt \N{GRINNING FACE}"),
    "order of 1 KB": order(5, lambda number: number * 10),
    "order of 60 KB": order(400, lambda number: number * 10),
}


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    import django

    django.setup()
    runs = [measure_run() for _ in range(RUNS)]
    print(f"{'body, and what its floor is':60}" + "".join(f"  run {run + 1}" for run in range(RUNS)))
    for name in runs[0]:
        print(f"{name:60}" + "".join(f"{run[name]:7.2f}" for run in runs))
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    held = (MOST_LARGE, MOST_LARGE, MOST_CANONICAL)
    return int(any(best[name] > most for name, most in zip(best, held, strict=False)))


def measure_run() -> dict[str, float]:
    """Return the ratio of every candidate to its floor."""
    from django_idempotency.core.canonical import canonicalize_json
    from django_idempotency.core.fingerprint import FingerprintRule, RequestParts, seal

    def parts(body: bytes) -> RequestParts:
        return RequestParts("POST", "/orders", "", "application/json", body)

    rules = {"": FingerprintRule(), " with a secret": FingerprintRule(secrets={"a": bytes(32)}, secret_id="a")}  # noqa: S106
    sides: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        f"{len(LARGE) / 1e6:.1f} MB{name}, SHA-256": (partial(_digest, LARGE), partial(seal, parts(LARGE), rule))
        for name, rule in rules.items()
    }
    for name, body in CANONICAL.items():
        sides[f"{name}, loads and dumps"] = (partial(_load_and_dump, body), partial(canonicalize_json, body))
    name, body = next(iter(CANONICAL.items()))
    sides[f"whole fingerprint, {name}"] = (partial(_load_and_dump, body), partial(seal, parts(body), rules[""]))
    pairs = {name: Pair(floor, ours, process_time) for name, (floor, ours) in sides.items()}
    interleave(pairs, ROUNDS, CALLS)
    return {name: pair.ratio for name, pair in pairs.items()}


def _digest(body: bytes) -> bytes:
    return sha256(body).digest()


def _load_and_dump(body: bytes) -> str:
    return json.dumps(json.loads(body))


if __name__ == "__main__":
    sys.exit(main())
