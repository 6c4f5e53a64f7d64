"""Every state, reply, grace period and trace of an effect, and what is known of the effect then."""

from itertools import product
from typing import Any, Final
from uuid import uuid4

import pytest

from django_idempotency import Reply, Status
from django_idempotency.core.decisions import Record
from django_idempotency.core.problems import members_of
from docs.pictures.effects import ROWS, row_of

OPEN: Final = {"pending", "in_progress", "unknown", "dead_letter"}
REPLIES: Final = (None, 200, 302, 404, 408, 500)
GRACE: Final = (None, -1.0, 0.0, 1.0)
TRACES: Final = ("tainted", "derived", "wrote", "steps_done")


def expected(status: str, reply: int | None, grace: float | None, traced: bool) -> str:
    """Return the effect, worked out from what can have happened instead of from the code's conditions."""
    if status in OPEN:
        return "possible"
    if status in ("completed", "expired"):
        kind = {None: "?", 2: "success", 3: "success", 4: "refusal", 5: "error"}[reply and reply // 100]
        return {"success": "done", "refusal": "possible" if traced else "none"}.get(kind, "possible")
    if traced:
        return "possible"
    return "possible" if status == "failed_retryable" and grace is not None and grace > 0 else "none"


@pytest.mark.parametrize("status", list(Status))
def test_the_effect_follows_from_the_record(status: Status) -> None:
    for reply, grace, traces in product(REPLIES, GRACE, product((0, 1), repeat=len(TRACES))):
        facts: dict[str, Any] = dict(zip(TRACES, traces, strict=True))
        stored = None if reply is None else Reply(reply, (), b"")
        record = Record(uuid4(), "scope", "key", status, "", grace_left=grace, reply=stored, **facts)
        wanted = expected(status.value, reply, grace, any(traces))
        assert record.effect == wanted, record
        assert members_of(record.effect)["safe_new_key"] is (wanted == "none")
        assert ROWS[row_of(status, reply, grace)][any(traces)] == wanted, "the table in the documentation"
