"""What a failover forgets: python -m benchmarks.failover [--seconds N] [--lag MS] [--json]

Needs no DATABASE_URL. A primary and a standby are started from a Python package, and gunicorn serves a view whose
effect is a line in a file. Clients send new keys all the time. The primary ends as in a power cut, the standby is
promoted, and every key is sent once more. Fails if synchronous replication loses or repeats anything.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.clients import CLIENTS, Sent, send_again, sending
from benchmarks.views import serve
from testproject.replication import NAME, PostgreSQL, primary_and_standby, wait_for
from testproject.servers import ROOT, prepare_database

NEAR: Final = 1.0  # milliseconds to a standby in the same data centre
DSN: Final = (
    "postgresql://postgres@/{}?host=127.0.0.1,127.0.0.1&port={},{}&target_session_attrs=read-write&connect_timeout=2"
)
CLAIM_LIMIT: Final = "5"  # seconds: longer than a host that does not answer takes before the other one is tried


@dataclass(frozen=True)
class Layout:
    """One way to replicate. The standby gets everything so many milliseconds late."""

    name: str
    lag: float
    synchronous: bool = False
    silent: bool = False  # the primary's host then swallows packets, instead of refusing connections


@dataclass(frozen=True)
class Figures:
    """What one failover did. Times are in seconds from the end of the primary."""

    layout: str
    acknowledged: int
    lost: int  # acknowledged, and not on the new primary
    executed_twice: int
    unsettled: int  # a client that sends the key again is told that it runs, or that its outcome is not known
    promoted_after: float
    first_success_after: float
    doctor_before: Sequence[str]
    doctor_afterwards: Sequence[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="how long clients send before the primary ends")
    parser.add_argument("--lag", type=float, default=2000, help="milliseconds that the late standby is behind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    layouts = (
        Layout(f"asynchronous, {options.lag:,.0f} ms late", options.lag),
        Layout(f"asynchronous, {NEAR:.0f} ms late", NEAR),
        Layout("synchronous", NEAR, synchronous=True),
        Layout("synchronous, silent host", NEAR, synchronous=True, silent=True),
    )
    found = [fail_over(layout, options.seconds) for layout in layouts]
    print(json.dumps(list(map(asdict, found))) if options.json else as_table(found))
    return 0 if all(map(is_as_expected, layouts, found)) else 1


def is_as_expected(layout: Layout, found: Figures) -> bool:
    """True if nothing is lost where commits wait for the standby, and the doctor complains where they do not."""
    held = not found.lost and not found.executed_twice
    complaints = [] if layout.synchronous else ["standbys-asynchronous"]
    return (held or not layout.synchronous) and [*found.doctor_before, *found.doctor_afterwards] == complaints


def fail_over(layout: Layout, seconds: float) -> Figures:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        primary, standby = stack.enter_context(primary_and_standby(lambda server: prepare_database(server.url)))
        line = stack.enter_context(line_between(primary, standby, layout))
        doctor_before = ask_doctor(primary)
        ledger, url = folder / "ledger", DSN.format(NAME, primary.port, standby.port)
        environment = {"BENCHMARK_LEDGER": str(ledger), "IDEMPOTENCY_CLAIM_LIMIT_SECONDS": CLAIM_LIMIT}
        service = stack.enter_context(serve(folder, url, environment)).url + "/outside"
        with sending(service) as sent:
            time.sleep(seconds)
            line.kill()  # first, so that what is on its way does not arrive
            primary.crash()
            if layout.silent:
                stack.enter_context(socket.create_server(("127.0.0.1", primary.port), backlog=1000))
            ended = time.monotonic()
            standby.ask("SELECT pg_promote()")
            promoted = time.monotonic()
            wait_for(lambda: successes(sent, ended) != [])
        acknowledged = {each.key for each in sent if each.is_acknowledged}
        with standby.connect() as server:
            kept = {key for (key,) in server.execute("SELECT key FROM idempotency_key WHERE status = 'completed'")}
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = pool.map(lambda each: send_again(service, each.key, until=(201, 409)), sent)
            statuses = Counter(answer.status for answer in answers)
        effects = Counter(ledger.read_text().split())
        return Figures(
            layout=layout.name,
            acknowledged=len(acknowledged),
            lost=len(acknowledged - kept),
            executed_twice=sum(count > 1 for count in effects.values()),
            unsettled=statuses[409],
            promoted_after=promoted - ended,
            first_success_after=min(successes(sent, ended)) - ended,
            doctor_before=doctor_before,
            doctor_afterwards=ask_doctor(standby),
        )


@contextmanager
def line_between(primary: PostgreSQL, standby: PostgreSQL, layout: Layout) -> Iterator[subprocess.Popen[str]]:
    """Let the standby follow over a line that delays, and commits wait for it if the layout says so."""
    command = [sys.executable, "-m", "benchmarks.delay", "127.0.0.1", str(primary.port), str(2 * layout.lag)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as line:  # noqa: S603
        try:
            port = int(line.stdout.readline())  # type: ignore[union-attr] # it is a pipe
            source = f"host=127.0.0.1 port={port} user=postgres application_name=standby"
            standby.alter([f"SET primary_conninfo = '{source}'", "SET wal_retrieve_retry_interval = '100ms'"])
            wait_for(lambda: standby.ask("SELECT sender_port, status FROM pg_stat_wal_receiver") == (port, "streaming"))
            if layout.synchronous:
                primary.alter(["SET synchronous_standby_names = 'standby'"])
                wait_for(lambda: primary.ask("SELECT sync_state FROM pg_stat_replication") == ("sync",))
            yield line
        finally:
            line.kill()


def successes(sent: Sequence[Sent], moment: float) -> list[float]:
    """Return when requests that were sent after this moment were acknowledged."""
    return [each.ended for each in sent if each.began > moment and each.is_acknowledged]


def ask_doctor(server: PostgreSQL) -> list[str]:
    """Return the codes of what is wrong, apart from the maintenance jobs and the reconciler, which are not there."""
    accepted = ("--ignore=job-never-ran", "--ignore=unknown-unattended")
    command = [sys.executable, "manage.py", "idempotency_doctor", "--json", *accepted]
    environment = {**os.environ, "DATABASE_URL": server.url}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)  # noqa: S603
    return [each["code"] for each in json.loads(done.stdout)["findings"]]


def as_table(found: Sequence[Figures]) -> str:
    rows = [tuple(name.replace("_", " ") for name in asdict(found[0]))]
    rows += [tuple(map(as_text, asdict(each).values())) for each in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)) for row in rows)


def as_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f} s"
    return (", ".join(value) or "calm") if isinstance(value, list) else str(value)


if __name__ == "__main__":
    sys.exit(main())
