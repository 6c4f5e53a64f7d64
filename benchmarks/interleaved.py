"""Two ways of doing the same, measured in turn, so that whatever else the machine does happens to both."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter


@dataclass
class Pair:
    """One call of the floor and one of ours; `times` are microseconds a call, one for each batch."""

    floor: Callable[[], object]
    ours: Callable[[], object]
    clock: Callable[[], float] = perf_counter
    times: dict[str, list[float]] = field(default_factory=lambda: {"floor": [], "ours": []})

    def measure(self, calls: int) -> None:
        sides = [("floor", self.floor), ("ours", self.ours)]
        random.shuffle(sides)
        for name, call in sides:
            begun = self.clock()
            for _ in range(calls):
                call()
            self.times[name].append((self.clock() - begun) / calls * 1e6)

    def microseconds(self, side: str) -> float:
        return median(self.times[side])

    @property
    def ratio(self) -> float:
        """The median of the rounds' own ratios: what slowed one round down is in both its halves."""
        return median(ours / floor for floor, ours in zip(self.times["floor"], self.times["ours"], strict=True))


def interleave(pairs: Mapping[str, Pair], rounds: int, calls: int) -> None:
    """Every pair once a round; the first round only warms up."""
    for number in range(rounds + 1):
        if sys.stderr.isatty():
            print(f"\r  round {number} of {rounds}", end="", file=sys.stderr, flush=True)
        for pair in pairs.values():
            pair.measure(calls)
            if number == 0:
                pair.times = {"floor": [], "ours": []}
    if sys.stderr.isatty():
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr, flush=True)
