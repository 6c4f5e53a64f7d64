"""The demonstration's last steps: work that goes on without the process that began it, and without its client."""

from __future__ import annotations

import re
import time
from typing import Any

from testproject.demo_walk import ORDER, PATIENCE_SECONDS, Unexpected, Walk, check, same_answer
from testproject.http import NoAnswer
from testproject.servers import Program

RIDE: dict[str, Any] = {"origin": "Bonn", "target": "Ulm", "simulate": {"kill": "at the end of charge_created"}}
EXPORT: dict[str, Any] = {"page": 1, "simulate": {"sleep": 0.6}}


def go_on(walk: Walk) -> None:
    lose_a_ride(walk)
    worker = walk.hire()
    find_the_ride_at_its_end(walk, worker)
    find_the_doubt_settled(walk, worker)
    follow_an_export(walk)


def lose_a_ride(walk: Walk) -> None:
    walk.step(
        "A ride takes four steps. In the third, charged and not written down, its process dies; nobody comes back."
    )
    try:
        walk.send("/rides/", RIDE, key="ride-1")
    except NoAnswer as error:
        print(f"    <-- no answer: {type(error).__name__}", flush=True)
    else:
        raise Unexpected("the ride should have killed its process")
    walk.charged(1, "The ride is booked and charged, and has no receipt.")


def find_the_ride_at_its_end(walk: Walk, worker: Program) -> None:
    walk.step("A Celery worker starts and ends what lost its process; only then does the client come back.")
    wait_for(worker, "resume_operations")
    answer = walk.post("/rides/", RIDE, 201, key="ride-1")
    check(answer.headers["Idempotency-Replayed"] == "true", "the worker should have ended the ride, not the retry")
    check("receipt" in answer.json(), "the ride should have got its receipt")
    walk.charged(0, "The third step was sent again with the same derived key, and the fourth was done.")


def find_the_doubt_settled(walk: Walk, worker: Program) -> None:
    walk.step("It has also asked the gateway about the payment whose worker was killed.")
    wait_for(worker, "reconcile_unknown")
    walk.pay({**ORDER, "simulate": {"sleep": PATIENCE_SECONDS}}, 201, key="order-4")
    walk.charged(0, "She was charged once, then, and now she has the answer.")


def follow_an_export(walk: Walk) -> None:
    walk.step("A report takes long, so the worker makes it. The address of the 202 tells how far it is, then gives it.")
    address = walk.post("/exports/", EXPORT, 202, key="export-1").headers["Location"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := walk.get(address)).status == 202:
        check(time.monotonic() < deadline, "the export did not end")
        time.sleep(int(answer.headers["Retry-After"]))
    check(answer.status == 201, "the address should have given the report")
    same_answer(answer, walk.post("/exports/", EXPORT, 201, key="export-1"))
    print("    ==> the same key asks for the same report: nothing was added up twice.", flush=True)


def wait_for(worker: Program, job: str) -> None:
    """The worker tells in its log what each run of a job came to."""
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while not (told := re.search(rf"{job}\S* succeeded in \S+ (.*'landed'.*)", said := worker.log.read_text())):
        check(worker.process.poll() is None, f"the worker ended; it said:\n{said[-2000:]}")
        check(time.monotonic() < deadline, f"{job} settled nothing; the worker said:\n{said[-2000:]}")
        time.sleep(0.2)
    print(f"    (the worker's log: {job}: {told[1]})", flush=True)
