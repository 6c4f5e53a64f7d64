"""What a client sees of its key: a replay, or an error response with a code."""

from typing import Any, Final

from django_idempotency.core.replies import ReplyRule

_RULE: Final = ReplyRule()
_OFTEN_DIFFERENT: Final = frozenset({"content-security-policy", "vary", "idempotency-replayed", "idempotent-replayed"})


def assert_replayed(response: Any, first: Any = None) -> None:
    """Fail unless this is a replay. With `first`, also compare status, bytes and headers with that response."""
    marks = [response.headers.get(name, "") for name in ("Idempotency-Replayed", "Idempotent-Replayed")]
    assert "true" in marks, f"Not a replay: the response, {summarize(response)}, is not marked as replayed."  # noqa: S101 - an assertion is what tests want
    if first is not None:
        difference = find_difference(first, response) or find_lost_header(first, response)
        assert not difference, f"Not the response that was stored: {difference}."  # noqa: S101


def assert_refused(response: Any, code: str) -> None:
    """Fail unless this is the error response with this code, such as `idempotency_key_in_progress`."""
    found = read_code(response)
    assert found == code, f"Not refused with {code!r}: the response is {summarize(response)}, with the code {found!r}."  # noqa: S101


def read_code(response: Any) -> str | None:
    """Return the code of a problem document, or of an error in Stripe's shape."""
    try:
        body = response.json()
    except ValueError:
        return None
    inner = body.get("error", body) if isinstance(body, dict) else None
    return inner.get("code") if isinstance(inner, dict) else None


def read_body(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else bytes(response.content)


def summarize(response: Any) -> str:
    """Return the status and the beginning of the body, for a message."""
    raised = getattr(response, "exc_info", None)
    said = f"{raised[0].__name__}: {raised[1]}" if raised else read_body(response)[:120].decode(errors="replace")
    return f"{response.status_code} {said}".strip()


def find_difference(first: Any, second: Any) -> str:
    """Return how the second response differs in its status or body; "" if it does not."""
    if first.status_code != second.status_code:
        return f"first {summarize(first)}, then {summarize(second)}"
    if read_body(first) != read_body(second):
        return f"the body was {read_body(first)[:120]!r}, then {read_body(second)[:120]!r}"
    return ""


def find_lost_header(first: Any, second: Any, varying: frozenset[str] = frozenset()) -> str:
    """Return which header the second response lacks or changes; "" if none. Headers of one moment do not count."""
    for name, value in first.items():
        lower = name.lower()
        if lower in _OFTEN_DIFFERENT | varying or not _RULE.stores(lower):
            continue
        if second.headers.get(name) != value:
            return f"{name} was {value!r}, then {second.headers.get(name)!r}"
    return ""
