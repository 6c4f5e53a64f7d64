from __future__ import annotations

import pytest

from testproject.servers import kill_workers, workers
from tests.kit.processes import Site
from tests.kit.threads import at_once, wait_until


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{ "b":1,\n"a" : 2 }', "application/json"),
        (bytes(range(256)), "application/octet-stream"),
        ("grüße".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        (b"a=1&a=2", "application/x-www-form-urlencoded"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"", "application/x-nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_echo_changes_no_byte(site: Site, body: bytes, content_type: str) -> None:
    answer = site.anyone.post_bytes("/conformance/echo", body, content_type=content_type)

    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (201, body, content_type)
    assert site.executions() == 1


def test_echo_invents_no_content_type(site: Site) -> None:
    answer = site.anyone.post_bytes("/conformance/echo", b"bare")

    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (201, b"bare", None)


def test_echo_takes_a_body_of_five_megabytes(site: Site) -> None:
    body = b"y" * 5_000_000
    assert site.anyone.post_bytes("/conformance/echo", body, content_type="text/plain").body == body


@pytest.mark.parametrize("code", [200, 201, 204, 302, 400, 404, 409, 422, 429, 500, 503, 599])
def test_status_answers_what_was_asked_for(site: Site, code: int) -> None:
    answer = site.anyone.post_bytes(f"/conformance/status/{code}")

    assert answer.status == code
    assert answer.body == (b"" if code == 204 else f"status:{code}".encode())
    assert site.executions() == 1


@pytest.mark.parametrize("path", ["status/199", "status/600", "slow", "slow?ms=-1", "slow?ms=x", "large?bytes=1e3"])
def test_a_wrong_wish_is_refused_and_not_counted(site: Site, path: str) -> None:
    assert site.anyone.post_bytes(f"/conformance/{path}").status == 400
    assert site.executions() == 0


def test_slow_says_how_long_it_slept(site: Site) -> None:
    answer = site.anyone.post_bytes("/conformance/slow?ms=30")
    assert (answer.status, answer.body) == (200, b"slept:30")


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_large_answers_that_many_bytes(site: Site, size: int) -> None:
    answer = site.anyone.post_bytes(f"/conformance/large?bytes={size}")

    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    assert answer.body == b"x" * size


def test_every_worker_counts_in_one_counter(site: Site) -> None:
    at_once([lambda: site.anyone.post_bytes("/conformance/status/500")] * 40)
    assert site.executions() == 40

    assert site.anyone.post("/conformance/reset").status == 204
    assert site.executions() == 0


def test_a_token_is_optional_but_a_wrong_one_is_refused(site: Site) -> None:
    assert site.alice.post_bytes("/conformance/echo", b"a").status == 201
    assert site.anyone.post_bytes("/conformance/echo", b"a", authorization="Token wrong").status == 401
    assert site.executions() == 1


@pytest.mark.soak
@pytest.mark.parametrize("running", ["gunicorn"], indirect=True)
def test_killed_workers_are_replaced_and_what_they_counted_stays(site: Site) -> None:
    site.anyone.post_bytes("/conformance/echo", b"before")

    killed = kill_workers(site.service)

    assert len(killed) == 4
    wait_until(lambda: len(set(workers(site.service)) - set(killed)) == 4)
    assert site.executions() == 1
