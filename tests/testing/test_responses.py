"""A replay and an error response are told from everything else, with a sentence about the difference."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse

from django_idempotency.testing import assert_refused, assert_replayed

FIRST = HttpResponse("done", status=201, headers={"Location": "/1"})
MARK = {"Idempotency-Replayed": "true"}


def replay(content: str = "done", status: int = 201, **headers: str) -> HttpResponse:
    return HttpResponse(content, status=status, headers={"Location": "/1", **MARK, **headers})


@pytest.mark.parametrize("mark", ["Idempotency-Replayed", "Idempotent-Replayed"])
def test_a_replay_is_marked(mark: str) -> None:
    assert_replayed(HttpResponse(headers={mark: "true"}))
    with pytest.raises(AssertionError, match="not marked"):
        assert_replayed(HttpResponse(headers={mark: "false"}))


def test_a_replay_of_the_first_response() -> None:
    assert_replayed(replay(Date="now"), FIRST)
    assert_replayed(StreamingHttpResponse([b"do", b"ne"], status=201, headers=MARK | {"Location": "/1"}), FIRST)


@pytest.mark.parametrize(
    ("other", "said"),
    [(replay("other"), "body"), (replay(status=200), "first 201"), (replay(Location="/2"), "Location")],
    ids=["body", "status", "header"],
)
def test_a_replay_of_something_else(other: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_replayed(other, FIRST)


@pytest.mark.parametrize("body", [{"code": "a"}, {"error": {"code": "a"}}])
def test_an_error_response_has_a_code(body: dict[str, Any]) -> None:
    answered = JsonResponse(body, status=409)
    answered.json = lambda: body  # type: ignore[attr-defined] # as the test client adds it
    assert_refused(answered, "a")
    with pytest.raises(AssertionError, match="Not refused with 'b': the response is 409"):
        assert_refused(answered, "b")


@pytest.mark.parametrize("body", [[], {"error": "text"}, {}])
def test_a_response_without_a_code_is_no_refusal(body: Any) -> None:
    answered = JsonResponse(body, safe=False)
    answered.json = lambda: body  # type: ignore[attr-defined] # as the test client adds it
    with pytest.raises(AssertionError, match="None"):
        assert_refused(answered, "a")
