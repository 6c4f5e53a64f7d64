"""Every condition of every statement, and the store without one of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection

from tests.store.oracle import Verb
from tests.store.verbs import ALL

IDENTITY = re.compile(r"scope = |id = |id IN ")  # which record it is about: no guard
JOINED = re.compile(r"\s+(?:AND|OR)\s+|[()]")


@dataclass(frozen=True)
class Mutant:
    """A statement in which one condition always holds."""

    verb: Verb
    condition: str
    text: str

    def __str__(self) -> str:
        return f"{self.verb.name} without {self.condition}"

    @contextmanager
    def at_work(self) -> Iterator[None]:
        texts = self.verb.statement._texts
        kept = texts[connection.vendor]
        texts[connection.vendor] = self.text
        try:
            yield
        finally:
            texts[connection.vendor] = kept


def mutants(vendor: str) -> Iterator[Mutant]:
    for verb in ALL:
        text = verb.statement.text(vendor)
        for start, end in conditions(text):
            yield Mutant(verb, text[start:end], f"{text[:start]}TRUE{text[end:]}")


def conditions(text: str) -> Iterator[tuple[int, int]]:
    """Where each stands that says no more than one thing."""
    _, where, guards = text.rpartition("WHERE ")
    for start, end in leaves(text, len(text) - len(guards), len(text)) if where else []:
        if not IDENTITY.match(text, start):
            yield start, end


def leaves(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What stands between AND, OR and the parentheses that group them."""
    parts = split(text, start, end)
    for first, last in parts:
        if text[first] == "(" and text[last - 1] == ")" and len(split(text, first + 1, last - 1)) > 1:
            yield from leaves(text, first + 1, last - 1)
        else:
            yield first, last


def split(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Between the words that join, outside of all parentheses."""
    found, depth = [start], 0
    for match in JOINED.finditer(text, start, end):
        if match[0] in "()":
            depth += 1 if match[0] == "(" else -1
        elif depth == 0:
            found += [match.start(), match.end()]
    return list(zip(found[::2], [*found[1::2], end], strict=True))
