"""The demonstration's last steps: work that goes on without the process that began it, and without its client."""

from __future__ import annotations

import re
import time
from typing import Any

from testproject.demo_walk import CLOSED, ORDER, PATIENCE_SECONDS, Unexpected, Walk, check, same_answer
from testproject.http import NoAnswer, stored_in

RIDE: dict[str, Any] = {"origin": "Bonn", "target": "Ulm", "simulate": {"kill": "at the end of charge_created"}}
EXPORT: dict[str, Any] = {"page": 1, "simulate": {"sleep": 0.6}}


def lose_a_ride(walk: Walk) -> None:
    walk.step("A ride takes four steps. Its process dies in the third, after the charge; the client never comes back.")
    try:
        walk.send("/rides/", RIDE, key="ride-1")
    except NoAnswer:
        walk.screen.write(CLOSED, "    <-- ", "        ", "red")
    else:
        raise Unexpected("the ride should have killed its process")
    walk.charged(1, "The ride is booked and charged, and has no receipt.")
    walk.look_at("ride-1", "/rides/")


def find_the_ride_at_its_end(walk: Walk) -> None:
    walk.step("A Celery worker starts and finishes the ride that lost its process; then the client asks again.")
    walk.worker = walk.hire()
    wait_for(walk, "resume_operations", "the worker to resume the ride")
    answer = walk.post("/rides/", RIDE, 201, key="ride-1")
    check(answer.headers["Idempotency-Replayed"] == "true", "the worker should have ended the ride, not the retry")
    check("receipt" in answer.json(), "the ride should have got its receipt")
    walk.charged(0, "The third step was sent again with the same downstream key, and the fourth was done.")


def find_the_doubt_settled(walk: Walk) -> None:
    walk.step("The Celery worker also asks the gateway about the payments of steps 9 and 10.")
    wait_for(walk, "reconcile_unknown", "the worker to ask the gateway", count=2)
    walk.pay({**ORDER, "simulate": {"sleep": PATIENCE_SECONDS}}, 201, key="order-4")
    walk.charged(0, "She was charged once, then, and now she has the response.")


def follow_an_export(walk: Walk) -> None:
    walk.step("A report takes long, so the worker makes it. The address in the 202 says how far it is, then has it.")
    address = walk.post("/exports/", EXPORT, 202, key="export-1").headers["Location"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := walk.get(address)).status == 202:
        check(time.monotonic() < deadline, "the export did not end")
        with walk.screen.waiting("the report"):
            time.sleep(int(answer.headers["Retry-After"]))
    check(answer.status == 200, "the address should have given the report")
    same_answer(stored_in(answer), walk.post("/exports/", EXPORT, 201, key="export-1"))
    walk.screen.fact("The same key returns the same report: no page was added up twice.")


def wait_for(walk: Walk, job: str, what: str, count: int = 1) -> None:
    """The worker tells in its log what each run of a job came to."""
    landed = re.compile(rf"{job}\S* succeeded in \S+ .*'landed': (\d+)")
    worker, deadline = walk.worker, time.monotonic() + 2 * PATIENCE_SECONDS
    with walk.screen.waiting(what):
        while sum(map(int, landed.findall(said := worker.log.read_text()))) < count:
            check(worker.process.poll() is None, f"the worker ended; it said:\n{said[-2000:]}")
            check(time.monotonic() < deadline, f"{job} settled nothing; the worker said:\n{said[-2000:]}")
            time.sleep(0.2)
    walk.screen.note(f"the worker's log: {job} settled {count}")


STEPS = (lose_a_ride, find_the_ride_at_its_end, find_the_doubt_settled, follow_an_export)
