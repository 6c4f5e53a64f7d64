"""A walk through the payments service with real processes: python -m testproject.demo [--once] [--postgres]"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testproject.demo_operations import go_on
from testproject.demo_walk import Unexpected, Walk, walk
from testproject.servers import Program, free_port, prepare_database, start_gateway, start_service, start_worker

# Five minutes and every minute by default; here nobody wants to wait that long after the crash.
QUICK = {
    "IDEMPOTENCY_LEASE_SECONDS": "6",
    "IDEMPOTENCY_GRACE_SECONDS": "6",
    "IDEMPOTENCY_EVERY_SECONDS": "2",
    "IDEMPOTENCY_COUNT_OUTCOMES": "1",
}
NEXT = """
The service goes on at {url}/ with its worker, and the gateway's ledger at {gateway}/ledger; Ctrl-C ends them.
Every key of this walk is in the admin at {url}/admin/ (user admin, password admin).
Next, pay with a key of your own, more than once, and look at the ledger in between:

  curl -i {url}/payments/ -H 'Authorization: Token alice-token' -H 'Idempotency-Key: "mine"' \\
       -H 'Content-Type: application/json' -d '{{"amount": 500, "currency": "EUR", "customer": "ada"}}'
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py demo", description=__doc__, allow_abbrev=False)
    parser.add_argument("--once", action="store_true", help="end after the walk; exit code 0 only if all went well")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, started for the moment, not SQLite")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with ExitStack() as stack:
            return show(stack.enter_context(service(postgres=options.postgres)), once=options.once)
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0


@contextmanager
def service(*, postgres: bool) -> Iterator[Walk]:
    with tempfile.TemporaryDirectory(prefix="payments-") as name, ExitStack() as stack:
        folder = Path(name)
        print(f"Starting the payments service on {'PostgreSQL' if postgres else 'SQLite'} …", flush=True)
        database = stack.enter_context(postgresql()) if postgres else f"sqlite:///{folder}/db.sqlite3"
        prepare_database(database)
        gateway = start_gateway(folder, port=free_port(9000))
        stack.callback(gateway.stop)
        service = start_service(
            folder,
            database_url=database,
            gateway_url=gateway.url,
            port=free_port(8000),
            workers=2,
            threads=8,
            environment=QUICK,
        )
        stack.callback(service.stop)

        def hire() -> Program:
            surroundings = {"DATABASE_URL": database, "GATEWAY_URL": gateway.url, "TESTPROJECT_VAR": str(folder)}
            worker = start_worker(folder, {**QUICK, **surroundings})
            stack.callback(worker.stop)
            return worker

        yield Walk(service, gateway, hire)


@contextmanager
def postgresql() -> Iterator[str]:
    from testproject.postgres import start, stop

    folder = Path(tempfile.mkdtemp(prefix="postgres-")).resolve()
    try:
        yield start(folder)
    finally:
        stop(folder)


def show(demonstration: Walk, *, once: bool) -> int:
    service = demonstration.service
    try:
        walk(demonstration)
        go_on(demonstration)
    except Unexpected as problem:
        print(f"\nNOT AS IT SHOULD BE: {problem}\n\nThe service said:\n{service.log.read_text()[-4000:]}")
        return 1
    print(f"\nAll {demonstration.steps} steps answered as they should.", flush=True)
    if once:
        print("Next, run it without --once: the service then stays up for requests of your own.", flush=True)
        return 0
    print(NEXT.format(url=service.url, gateway=demonstration.gateway.url), flush=True)
    return service.process.wait()


if __name__ == "__main__":
    sys.exit(main())
