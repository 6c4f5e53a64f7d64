"""A walk through the payments service with real processes."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testproject import demo_operations, demo_walk
from testproject.demo_screen import Screen
from testproject.demo_walk import Unexpected, Walk
from testproject.servers import ROOT, Program, free_port, prepare_database, start_gateway, start_service, start_worker

# Five minutes and every minute by default; here nobody wants to wait that long after the crash.
QUICK = {
    "IDEMPOTENCY_LEASE_SECONDS": "6",
    "IDEMPOTENCY_GRACE_SECONDS": "6",
    "IDEMPOTENCY_EVERY_SECONDS": "2",
    "IDEMPOTENCY_COUNT_OUTCOMES": "1",
}
STEPS = (*demo_walk.STEPS, *demo_operations.STEPS)
SERVED = """
  service  {url}/
  admin    {url}/admin/  (user admin, password admin)
  ledger   {gateway}/ledger  (the gateway's own list of charges)
"""
IN_A_SHELL = """
  export DATABASE_URL={database}
  {python} manage.py idempotency_list
  {python} manage.py idempotency_inspect order-4
"""
LOSE_A_RESPONSE = """
  curl {gateway}/switches -d '{{"lose_answer": true}}'
"""
PAY = """
  curl -i {url}/payments/ \\
    -H 'Authorization: Token alice-token' -H 'Idempotency-Key: "mine"' \\
    -H 'Content-Type: application/json' \\
    -d '{{"amount": 500, "currency": "EUR", "customer": "ada"}}'
"""
TO_TRY = (
    ("Read the stories that the walk left behind, in the admin or in a second terminal:", IN_A_SHELL),
    ("Pay with a key of your own, more than once, and look at the ledger in between:", PAY),
    (
        "Let the gateway lose its response, and pay with another key: 504, then 409, and a few seconds later the "
        "response, because the worker has asked the gateway.",
        LOSE_A_RESPONSE,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py demo", description=__doc__, allow_abbrev=False)
    parser.add_argument("--once", action="store_true", help="end after the walk; exit code 0 only if all went well")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, started for the moment, not SQLite")
    parser.add_argument("--port", type=parse_port, default=None, help="of the service; 8000 or any free one by default")
    parser.add_argument(
        "--host", default="127.0.0.1", help="where the service and the gateway listen; 0.0.0.0 in a container"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with ExitStack() as stack:
            walk = stack.enter_context(service(options.host, options.port, postgres=options.postgres))
            walk.serves = not options.once
            return show(walk)
    except PortTaken as taken:
        print(taken, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0


class PortTaken(Exception):
    """The port that was asked for is in use."""


def parse_port(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give one from 1 to 65535.")
    return int(text)


def choose_port(wanted: int | None) -> int:
    port = free_port(wanted or 8000)
    if wanted and port != wanted:
        raise PortTaken(f"Port {wanted} is in use: name another with --port, or leave it out.")
    return port


@contextmanager
def service(host: str, wanted_port: int | None, *, postgres: bool) -> Iterator[Walk]:
    choose_port(wanted_port)  # fails before anything is started
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="payments-") as name, ExitStack() as stack:
        folder = Path(name)
        print(f"Starting the payments service on {'PostgreSQL' if postgres else 'SQLite'} …", flush=True)
        screen.place = "before the first step"
        with screen.waiting("the database and its tables"):
            database = f"sqlite:///{folder}/db.sqlite3"
            if postgres:
                from testproject.postgres import running  # its packages are installed for --postgres only

                database = stack.enter_context(running())
            prepare_database(database, "--people")
        gateway = start_gateway(folder, host=host, port=free_port(9000))
        stack.callback(gateway.stop)
        service = start_service(
            folder,
            database_url=database,
            gateway_url=gateway.url,
            host=host,
            port=choose_port(wanted_port),
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

        yield Walk(service, gateway, hire, database, len(STEPS), screen=screen)


def show(walk: Walk) -> int:
    service, screen = walk.service, walk.screen
    try:
        for step in STEPS:
            step(walk)
    except Unexpected as problem:
        print(f"\nNOT AS IT SHOULD BE: {problem}\n\nThe service said:\n{service.log.read_text()[-4000:]}")
        return 1
    print()
    screen.write(f"All {walk.steps} steps answered as they should.", "", "", "bold", "green")
    if not walk.serves:
        screen.write("Next, run it without --once: the service then stays up for requests of your own.")
        return 0
    say_what_to_try(walk)
    return service.process.wait()


def say_what_to_try(walk: Walk) -> None:
    """Print addresses and commands as they are, because they are copied, and wrap only the sentences."""
    python = Path(sys.executable)
    shown = python.relative_to(ROOT) if python.is_relative_to(ROOT) else python
    known = {"url": walk.service.url, "gateway": walk.gateway.url, "database": walk.database, "python": shown}
    walk.screen.write("The service and its worker stay up until you press Ctrl-C. Three things to try:")
    print(SERVED.format(**known))
    for number, (sentence, commands) in enumerate(TO_TRY, start=1):
        walk.screen.write(f"{number}. {sentence}", "", "   ", "bold")
        print(commands.format(**known), flush=True)


if __name__ == "__main__":
    sys.exit(main())
