"""A driver of benchmarks.lossy_network: fetch in Chromium, with the client's outbox in IndexedDB.

The page and the client come from this process, as if they were the service's own: what is tried behind the lossy
network are the calls. The profile of the browser is OUTBOX_PATH. When this process is killed, so is the browser.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Route, sync_playwright

CLIENT: Final = Path(__file__).resolve().parent.parent / "clients" / "js"
KILL_AFTER_US: Final = "read line; kill -9 $(readlink SingletonLock | sed 's/.*-//')"
PROGRAM: Final = """async ({ token, names }) => {
  const { createOutbox } = await import("./index.js");
  const headers = { Authorization: `Token ${token}`, "Content-Type": "application/json" };
  const origins = [location.origin];
  const outbox = createOutbox({ origins, headers: () => headers, backoff: 50, timeout: 700, deadline: 120_000 });
  const work = async () => {
    for (let name; (name = names.shift()); ) {
      const body = JSON.stringify({ reference: name, customer: name, amount: 1000, currency: "EUR" });
      const response = await outbox.once(name, "/payments/", { method: "POST", headers, body });
      await finished(name, response.status, await response.text());
    }
  };
  await outbox.resume();
  await Promise.all(Array.from({ length: 8 }, work));
}"""


def main(base: str, calls: str, outbox: str, results: str) -> None:
    profile, written = Path(outbox), Path(results)
    profile.mkdir(exist_ok=True)
    kill_browser_before_us(profile)
    watchdog = subprocess.Popen(  # noqa: S603 - the command is written in this file
        ["/bin/sh", "-c", KILL_AFTER_US], cwd=profile, stdin=subprocess.PIPE, start_new_session=True
    )
    done = {json.loads(line)["name"] for line in written.read_text().splitlines()} if written.exists() else set()
    names = [name for name in (f"call-{number}" for number in range(int(calls))) if name not in done]

    def finished(name: str, status: int, body: str) -> None:
        with written.open("a") as file:
            file.write(json.dumps({"name": name, "status": status, "body": body}) + "\n")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.pages[0]
        page.route("**/driver/*", serve_client)
        page.expose_function("finished", finished)
        page.goto(f"{base}/driver/page.html")
        page.evaluate(PROGRAM, {"token": os.environ["TOKEN"], "names": names})
        watchdog.kill()
        browser.close()


def kill_browser_before_us(profile: Path) -> None:
    """A browser that is not dead yet would keep the profile."""
    lock = profile / "SingletonLock"
    if lock.is_symlink():
        with suppress(ProcessLookupError):
            os.kill(int(lock.readlink().name.rpartition("-")[2]), signal.SIGKILL)
        lock.unlink(missing_ok=True)


def serve_client(route: Route) -> Any:
    name = route.request.url.rpartition("/")[2]
    if name == "page.html":
        return route.fulfill(body="<!doctype html><title>Driver</title>", content_type="text/html")
    return route.fulfill(path=CLIENT / name, content_type="text/javascript")


if __name__ == "__main__":
    main(*sys.argv[1:])
