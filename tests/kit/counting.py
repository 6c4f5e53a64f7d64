"""Statements counted by kind; BEGIN, COMMIT and SAVEPOINT apart, because a view pays for those already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db import connections
from django.test.utils import CaptureQueriesContext

KINDS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


@dataclass(frozen=True)
class Counts:
    """How many of each; `texts` shows them all where a test fails."""

    plain: int
    begin: int = 0
    commit: int = 0
    savepoint: int = 0
    texts: tuple[str, ...] = ()

    def beyond(self, other: Counts) -> Counts:
        return Counts(
            self.plain - other.plain, self.begin - other.begin, self.commit - other.commit,
            self.savepoint - other.savepoint, self.texts,
        )  # fmt: skip

    def numbers(self) -> tuple[int, int, int, int]:
        return self.plain, self.begin, self.commit, self.savepoint

    def __str__(self) -> str:
        heading = f"{self.plain} statements, {self.begin} BEGIN, {self.commit} COMMIT, {self.savepoint} SAVEPOINT"
        return "\n  ".join((heading, *self.texts))


def counted(work: Callable[[], object], using: str = "default") -> Counts:
    """What this work sends to the database."""
    with CaptureQueriesContext(connections[using]) as captured:
        work()
    texts = tuple(" ".join(query["sql"].split())[:110] for query in captured)
    kinds = [text.split()[0].upper() for text in texts]
    return Counts(
        plain=sum(kind not in KINDS for kind in kinds),
        begin=kinds.count("BEGIN"),
        commit=kinds.count("COMMIT") + kinds.count("ROLLBACK"),
        savepoint=kinds.count("SAVEPOINT") + kinds.count("RELEASE"),
        texts=texts,
    )
