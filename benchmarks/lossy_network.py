"""Clients behind a network that loses things: python -m benchmarks.lossy_network [--calls N] [--kills N] [CLIENT ...]

The payments service runs in gunicorn, on the database of DATABASE_URL, or on SQLite without one. A proxy before it
loses requests and responses, cuts them in half or delays both. Each client is a program, a driver, that is killed with
SIGKILL while its requests are on their way, and started again until it exits with 0. The provider does not
deduplicate. Fails unless the provider was charged exactly once for each call, and each call has its one response.

A driver is called as

    COMMAND BASE_URL CALLS OUTBOX_PATH RESULTS_FILE

with the environment variable TOKEN. It first resumes the calls that are open in OUTBOX_PATH, which only the driver
uses, and then makes the logical calls call-0 to call-(CALLS - 1), several at the same time:

    POST BASE_URL/payments/
    Authorization: Token TOKEN
    Content-Type: application/json

    {"reference": "call-17", "customer": "call-17", "amount": 1000, "currency": "EUR"}

For each call that has finished it appends one line to RESULTS_FILE, with the status and the body as text:

    {"name": "call-17", "status": 201, "body": "{\\"id\\":1,…}"}

The name is what the outbox knows the call by. A call may have several lines, if its driver was killed in between: they
have to be the same. Exit with 0 when every call has its line, and with anything else to be started again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from benchmarks.lossy_proxy import lossy_proxy
from testproject.http import exchange_json
from testproject.servers import ROOT, Server, prepare_database, start_gateway, start_service

# Add a driver here: its name, and the command before the four arguments, which runs in the root of the checkout.
PYTHON: Final = (sys.executable, "-m", "benchmarks.lossy_drivers")
DRIVERS: Final[dict[str, tuple[str, ...]]] = {
    "httpx": (*PYTHON, "httpx"),
    "httpx async": (*PYTHON, "httpx-async"),
    "requests": (*PYTHON, "requests"),
    "fetch in Node": ("node", "clients/js/proof/node.js"),
    "fetch in Chromium": (sys.executable, "-m", "benchmarks.chromium_driver"),
}
TOKEN: Final = "alice-token"  # noqa: S105 - of the demonstration
MOST_FAILURES: Final = 20  # exits with an error, apart from those of a kill


@dataclass
class Figures:
    """What became of the calls of one client."""

    client: str
    calls: int
    charged: int = 0  # by the provider
    charged_twice: int = 0
    answered: int = 0  # calls with one response, which names their charge
    lines: int = 0
    wrong: list[str] = field(default_factory=list)  # the first of what is not as it has to be
    kills: int = 0
    failures: int = 0
    requests: int = 0
    fates: dict[str, int] = field(default_factory=dict)
    seconds: float = 0

    @property
    def is_right(self) -> bool:
        return not self.wrong and self.charged == self.answered == self.calls


class Executioner:
    """Kills the running driver at random moments of its requests. Threads of the proxy call it."""

    def __init__(self, kills: int, moments: int, seed: int) -> None:
        self.kills, self.killed = kills, 0
        self._mean = max(moments // (kills + 1), 1)
        self._random = random.Random(seed)
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._left = 0

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process, self._left = process, self._random.randint(1, 2 * self._mean)

    def pass_moment(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0 and self._process is not None and self.killed < self.kills:
                time.sleep(self._random.uniform(0, 0.01))  # or it would always die as the proxy reads
                self.killed += self._process.poll() is None
                self._process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lossy_network", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(DRIVERS)}; all of them by default")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=40, help="how often each client is killed")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the fates and the kills")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.clients) - set(DRIVERS):
        parser.error(f"there is no client {', '.join(sorted(unknown))}; there are {', '.join(DRIVERS)}")
    print(f"seed {options.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        url = os.environ.get("DATABASE_URL") or f"sqlite:///{name}/db.sqlite3"
        prepare_database(url)
        found = []
        for client in options.clients or DRIVERS:
            folder = Path(name, client.replace(" ", "-"))
            folder.mkdir()
            found.append(try_client(client, DRIVERS[client], folder, url, options.calls, options.kills, options.seed))
            print(json.dumps(asdict(found[-1])) if options.json else describe(found[-1]), flush=True)
    return 0 if all(each.is_right for each in found) else 1


def try_client(
    client: str, command: tuple[str, ...], folder: Path, url: str, calls: int, kills: int, seed: int
) -> Figures:
    """Start a provider and a service, and run one driver through the proxy until it has finished."""
    figures, began = Figures(client, calls), time.monotonic()
    executioner = Executioner(kills, moments=4 * calls, seed=seed)
    with ExitStack() as stack:
        gateway = start_gateway(folder)
        stack.callback(gateway.stop)
        exchange_json("POST", f"{gateway.url}/switches", {"dedupe": False})
        service = start_service(folder, database_url=url, gateway_url=gateway.url, workers=2, threads=8)
        stack.callback(service.stop)
        proxy = stack.enter_context(lossy_proxy(service.port, seed, executioner.pass_moment))
        arguments = (f"http://127.0.0.1:{proxy.port}", str(calls), str(folder / "outbox"), str(folder / "results"))
        run_driver((*command, *arguments), folder / "driver.log", executioner, figures)
        charges = read_ledger(gateway)
    figures.kills, figures.requests = executioner.killed, proxy.fates.total()
    figures.fates = {str(fate): count for fate, count in proxy.fates.items()}
    judge(figures, charges, folder / "results")
    figures.seconds = round(time.monotonic() - began, 1)
    return figures


def run_driver(command: tuple[str, ...], log: Path, executioner: Executioner, figures: Figures) -> None:
    """Run the driver until it exits with 0."""
    environment = {**os.environ, "TOKEN": TOKEN}
    with log.open("wb") as output:
        while True:
            killed = executioner.killed
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)  # noqa: S603
            executioner.watch(process)
            try:
                status = process.wait()
            finally:
                process.kill()
            if status == 0:
                return
            figures.failures += executioner.killed == killed
            if figures.failures > MOST_FAILURES:
                figures.wrong.append(f"the driver fails: {log.read_text(errors='replace')[-2000:]}")
                return


def read_ledger(gateway: Server) -> list[dict[str, Any]]:
    charges: list[dict[str, Any]] = exchange_json("GET", f"{gateway.url}/ledger").json()["charges"]
    return charges


def judge(figures: Figures, charges: list[dict[str, Any]], results: Path) -> None:
    """Compare what the provider charged with what the driver wrote down."""
    names = [f"call-{number}" for number in range(figures.calls)]
    charged = Counter(charge["customer"] for charge in charges)
    responses: dict[str, set[tuple[int, str]]] = {name: set() for name in names}
    for line in results.read_text().splitlines() if results.exists() else ():
        result = json.loads(line)
        responses.setdefault(result["name"], set()).add((result["status"], result["body"]))
        figures.lines += 1
    figures.charged, figures.charged_twice = charged.total(), sum(count > 1 for count in charged.values())
    by_customer = {charge["customer"]: charge["id"] for charge in charges}
    for name in sorted({*names, *charged, *responses}):
        if charged[name] != 1 or not is_response_of(by_customer[name], responses.get(name, set())):
            figures.wrong.append(f"{name}: charged {charged[name]} times, responses {responses.get(name)}")
        else:
            figures.answered += 1
    del figures.wrong[5:]


def is_response_of(charge: str, responses: set[tuple[int, str]]) -> bool:
    """True if there is one response, and it is that of the charge."""
    found = [(status, json.loads(body).get("charge")) for status, body in responses]
    return found == [(201, charge)]


def describe(figures: Figures) -> str:
    fates = ", ".join(f"{count:,} {fate}" for fate, count in sorted(figures.fates.items()))
    return "\n".join(
        (
            f"{figures.client}: {figures.calls:,} calls, {figures.charged:,} charges ({figures.charged_twice:,} calls "
            f"charged twice), {figures.answered:,} calls with their one response; {figures.kills:,} kills, "
            f"{figures.failures:,} exits with an error, {figures.seconds:,.0f} s",
            f"  {figures.requests:,} requests: {fates}",
            *(f"  WRONG: {each}" for each in figures.wrong),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
