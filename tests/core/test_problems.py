"""What a client reads when it is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from django_idempotency import IETF, STRIPE, Profile
from django_idempotency.core import problems
from django_idempotency.core.links import DOCUMENTATION, docs_url
from django_idempotency.core.problems import (
    IN_FLIGHT,
    INVALID_KEY,
    MISMATCH,
    MISSING_KEY,
    NO_PRINCIPAL,
    NOT_FOUND,
    NOTHING_DONE,
    PROBLEMS,
    UNAVAILABLE,
    UNKNOWN,
    Problem,
    build_link,
    build_members,
    render,
)
from django_idempotency.core.profiles import Shape
from django_idempotency.core.validation import CODES

ALL = [each for each in vars(problems).values() if isinstance(each, Problem)]


def test_codes_are_stable_and_their_own() -> None:
    codes = {each.code for each in ALL}
    assert len(codes) == len(ALL)
    assert tuple(each.code for each in PROBLEMS) == CODES
    assert {
        "idempotency_key_missing",
        "idempotency_key_invalid",
        "idempotency_key_reused_with_different_payload",
        "idempotency_key_in_progress",
        "idempotency_outcome_unknown",
        "idempotency_key_expired",
        "idempotency_store_unavailable",
    } <= codes


def test_people_are_told_what_happened_and_what_to_do() -> None:
    for problem in ALL:
        assert re.fullmatch(r"idempotency_[a-z_]+", problem.code), problem
        assert re.fullmatch(r"[A-Z][^.]+", problem.title), problem
        assert re.fullmatch(r"[A-Z].+\.", problem.detail), problem


def test_a_problem_says_everything_in_the_standard_shape() -> None:
    reply = render(IETF, UNKNOWN, 409, safe_new_key=False)
    assert (reply.status, reply.headers) == (409, (("Content-Type", "application/problem+json"),))
    assert json.loads(reply.body or b"") == {
        "type": docs_url("reference/errors", UNKNOWN.code),
        "title": UNKNOWN.title,
        "status": 409,
        "detail": UNKNOWN.detail,
        "code": "idempotency_outcome_unknown",
        "safe_new_key": False,
    }


def test_a_detail_of_the_moment_takes_the_place_of_the_usual_one() -> None:
    said = json.loads(render(IETF, INVALID_KEY, 400, "It is too long.").body or b"")
    assert (said["title"], said["detail"]) == (INVALID_KEY.title, "It is too long.")


def test_published_rules_are_linked_and_are_the_type() -> None:
    profile = Profile(name="own", documentation="https://example.org/keys")
    reply = render(profile, MISMATCH, 422)
    section = f"https://example.org/keys#{MISMATCH.code}"
    link = f'<{section}>; rel="describedby"; type="text/html"'
    assert dict(reply.headers) == {"Content-Type": "application/problem+json", "Link": link}
    assert json.loads(reply.body or b"")["type"] == section


def test_an_address_with_a_fragment_is_sent_as_it_is() -> None:
    profile = Profile(name="own", documentation="https://example.org/docs#/keys")
    assert json.loads(render(profile, MISMATCH, 422).body or b"")["type"] == profile.documentation


def test_without_a_page_of_the_project_each_type_is_a_line_of_ours() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/errors.md").read_text()
    for problem in ALL:
        address = build_members(IETF, problem, 400)["type"]
        assert address == f"{DOCUMENTATION}reference/errors.html#{problem.code}"
        assert page.count(f'<a id="{problem.code}"></a>') == 1, problem.code


def test_the_rules_page_explains_every_problem_unless_the_profile_names_other_documentation() -> None:
    assert list(PROBLEMS) == ALL
    own = Profile(name="own", documentation="https://example.org/keys")
    for problem in ALL:
        section = f"/rules/#{problem.code}"
        assert build_members(IETF, problem, 400, page="/rules/")["type"] == section
        assert build_link(IETF, problem, "/rules/") == {"Link": f'<{section}>; rel="describedby"; type="text/html"'}
        assert build_members(own, problem, 400, page="/rules/")["type"] == f"{own.documentation}#{problem.code}"
    assert build_link(IETF, MISMATCH) == {}


def test_the_address_of_an_outcome_is_linked_with_the_rules_and_without() -> None:
    status = '</operations/1/>; rel="status"'
    rules = f'</rules/#{UNKNOWN.code}>; rel="describedby"; type="text/html"'
    assert build_link(IETF, UNKNOWN, outcome="/operations/1/") == {"Link": status}
    assert build_link(IETF, UNKNOWN, "/rules/", "/operations/1/") == {"Link": f"{rules}, {status}"}


STRIPES_TYPES = ("api_error", "card_error", "idempotency_error", "invalid_request_error")


@pytest.mark.parametrize(
    ("problem", "kind", "code"),
    [
        (MISSING_KEY, "idempotency_error", MISSING_KEY.code),
        (INVALID_KEY, "idempotency_error", INVALID_KEY.code),
        (MISMATCH, "idempotency_error", MISMATCH.code),
        (IN_FLIGHT, "idempotency_error", "idempotency_key_in_use"),
        (NOT_FOUND, "invalid_request_error", "resource_missing"),
        (NO_PRINCIPAL, "invalid_request_error", NO_PRINCIPAL.code),
        (UNKNOWN, "api_error", UNKNOWN.code),
        (UNAVAILABLE, "api_error", UNAVAILABLE.code),
        (NOTHING_DONE, "api_error", NOTHING_DONE.code),
    ],
    ids=lambda each: getattr(each, "code", None),
)
def test_stripes_clients_read_an_error_object(problem: Problem, kind: str, code: str) -> None:
    reply = render(STRIPE, problem, 400, safe_new_key=True)
    assert reply.headers == (("Content-Type", "application/json"),)
    said = json.loads(reply.body or b"")
    assert said == {"error": {"type": kind, "code": code, "message": problem.detail}}


def test_every_problem_has_a_type_that_stripes_clients_know() -> None:
    assert [problem.code for problem in ALL if problem.stripe_type not in STRIPES_TYPES] == []


def test_an_api_can_give_problems_its_own_shape() -> None:
    profile = Profile(name="own", reshape=lambda full: {"errors": [full["code"]], "ok": full["status"] < 400})
    reply = render(profile, MISMATCH, 422)
    assert reply.headers == (("Content-Type", "application/json"),)
    assert json.loads(reply.body or b"") == {"errors": [MISMATCH.code], "ok": False}


def test_a_project_gives_problems_codes_of_its_own() -> None:
    codes = {IN_FLIGHT.code: "E409-17"}
    profile = Profile(name="own", codes=codes)
    codes[UNKNOWN.code] = "changed later"
    assert build_members(profile, IN_FLIGHT, 409, page="/rules/")["code"] == "E409-17"
    assert build_members(profile, IN_FLIGHT, 409, page="/rules/")["type"] == f"/rules/#{IN_FLIGHT.code}"
    assert build_members(profile, UNKNOWN, 409)["code"] == UNKNOWN.code


def test_a_code_of_its_own_comes_before_stripes() -> None:
    profile = Profile(name="own", shape=Shape.STRIPE, codes={IN_FLIGHT.code: "E409-17"})
    assert build_members(profile, IN_FLIGHT, 409)["error"]["code"] == "E409-17"
    assert build_members(profile, NOT_FOUND, 404)["error"]["code"] == "resource_missing"


def test_a_reshaped_problem_has_the_projects_code() -> None:
    profile = Profile(name="own", codes={MISMATCH.code: "E1"}, reshape=lambda full: {"error": full["code"]})
    assert build_members(profile, MISMATCH, 422) == {"error": "E1"}


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (
            {"idempotency_key_in_progres": "E1"},
            r"^codes has no name 'idempotency_key_in_progres'; did you mean "
            r"'idempotency_key_in_progress'\?$",
        ),
        ({"E1": "E2"}, r"^codes has no name 'E1'; it must be one of idempotency_key_missing, .*found\.$"),
        ({UNKNOWN.code: ""}, r"^codes\['idempotency_outcome_unknown'\] must be a text that is not empty; it is ''\.$"),
        ({UNKNOWN.code: 409}, r"must be a text that is not empty; it is 409\.$"),
    ],
)
def test_codes_are_checked_where_they_are_written(codes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Profile(name="own", codes=codes)


def test_profiles_with_codes_of_their_own_can_be_compared_and_hashed() -> None:
    one, other = (Profile(name="own", codes={UNKNOWN.code: code}) for code in ("E1", "E2"))
    assert one != other
    assert len({one, other, Profile(name="own", codes={UNKNOWN.code: "E1"})}) == 2
