"""The drivers of `lossy_network` for the Python clients: python -m benchmarks.lossy_drivers LIBRARY …"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import requests

from django_idempotency.client import (
    AsyncIdempotentTransport,
    CallRules,
    IdempotentAdapter,
    IdempotentTransport,
    Outbox,
)

AT_ONCE: Final = 6
TIMEOUT: Final = 0.7  # seconds: less than the longest delay of the proxy
RULES: Final = CallRules(backoff=0.05, longest=0.5)


class Results:
    """The file of results. A line is one write, so a killed driver leaves no half line."""

    def __init__(self, path: str) -> None:
        self.path = path
        lines = Path(path).read_text().splitlines() if Path(path).exists() else []
        self.names = {json.loads(line)["name"] for line in lines}

    def add(self, name: str, response: Any) -> None:
        line = json.dumps({"name": name, "status": response.status_code, "body": response.text}) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def missing(self, calls: int) -> Iterator[str]:
        return (name for name in (f"call-{number}" for number in range(calls)) if name not in self.names)


def order(name: str) -> dict[str, Any]:
    return {"reference": name, "customer": name, "amount": 1000, "currency": "EUR"}


def run(client: Any, base: str, calls: int, outbox: Outbox, results: Results) -> None:
    def call(name: str) -> None:
        with outbox.once(name):
            results.add(name, client.post(f"{base}/payments/", json=order(name), timeout=TIMEOUT))

    for name, result in outbox.resume(client, origin=base, timeout=TIMEOUT):
        print(f"resumed {name}: {result!r}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(call, results.missing(calls)))


def run_httpx(base: str, *arguments: Any) -> None:
    with httpx.Client(transport=IdempotentTransport(origins=[base], rules=RULES), headers=credentials()) as client:
        run(client, base, *arguments)


def run_requests(base: str, *arguments: Any) -> None:
    with requests.Session() as session:
        session.mount(base, IdempotentAdapter(origins=[base], rules=RULES, pool_maxsize=AT_ONCE))
        session.headers.update(credentials())
        run(session, base, *arguments)


async def run_async(base: str, calls: int, outbox: Outbox, results: Results) -> None:
    places = asyncio.Semaphore(AT_ONCE)
    transport = AsyncIdempotentTransport(origins=[base], rules=RULES)
    async with httpx.AsyncClient(transport=transport, headers=credentials(), timeout=TIMEOUT) as client:

        async def call(name: str) -> None:
            async with places:
                with outbox.once(name):
                    results.add(name, await client.post(f"{base}/payments/", json=order(name)))

        async for name, result in outbox.aresume(client, origin=base):
            print(f"resumed {name}: {result!r}")
        await asyncio.gather(*map(call, results.missing(calls)))


def credentials() -> dict[str, str]:
    return {"Authorization": f"Token {os.environ['TOKEN']}"}


def main() -> None:
    library, base, calls, outbox, results = sys.argv[1:]
    arguments = (base, int(calls), Outbox(outbox), Results(results))
    if library == "httpx-async":
        asyncio.run(run_async(*arguments))
    else:
        {"httpx": run_httpx, "requests": run_requests}[library](*arguments)


if __name__ == "__main__":
    main()
