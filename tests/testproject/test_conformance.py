"""The views that other tests and other people's clients are tried on: they change nothing and count everything."""

from __future__ import annotations

import pytest

from testproject.servers import kill_workers, workers
from tests.kit.processes import Site
from tests.kit.threads import at_once, wait_until

on_both = pytest.mark.parametrize("running", ["gunicorn", "uvicorn"], indirect=True)


@on_both
def test_echo_changes_no_byte(site: Site) -> None:
    sent = [
        (b'{ "b":1,\n"a" : 2 }', "application/json"),
        (bytes(range(256)), "application/octet-stream"),
        ("grüße".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"y" * 5_000_000, "text/plain"),
    ]
    for body, kind in sent:
        answer = site.anyone.post_bytes("/conformance/echo", body, content_type=kind)
        assert (answer.status, answer.headers["Content-Type"], answer.body == body) == (201, kind, True)
    bare = site.anyone.post_bytes("/conformance/echo", b"bare")
    assert (bare.status, bare.body, bare.headers["Content-Type"]) == (201, b"bare", None)
    assert site.executions() == len(sent) + 1


def test_a_wish_is_granted_or_refused_and_not_counted(site: Site) -> None:
    granted = {
        "status/204": (204, b""),
        "status/302": (302, b"status:302"),
        "status/599": (599, b"status:599"),
        "slow?ms=30": (200, b"slept:30"),
        "large?bytes=3000": (200, b"x" * 3000),
    }
    answers = {wish: site.anyone.post_bytes(f"/conformance/{wish}") for wish in granted}
    assert {wish: (answer.status, answer.body) for wish, answer in answers.items()} == granted
    assert site.executions() == len(granted)
    refused = ["status/199", "status/600", "slow", "slow?ms=-1", "slow?ms=x", "large?bytes=1e3"]
    assert {site.anyone.post_bytes(f"/conformance/{wish}").status for wish in refused} == {400}
    assert site.executions() == len(granted)


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
