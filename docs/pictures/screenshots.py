"""Photograph the admin with seeded data: `python -m docs.pictures.screenshots`. Needs chromium and playwright."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

IMAGES: Final = Path(__file__).resolve().parents[1] / "images"
LIST: Final = "/admin/django_idempotency/idempotencykey/"
SIZE: Final = {"width": 1360, "height": 900}
SCHEMES: Final[tuple[Any, ...]] = ("light", "dark")


def pages() -> dict[str, str]:
    """The name of each picture, and what is in it."""
    from django_idempotency.models import IdempotencyKey

    dead = IdempotencyKey.objects.get(key__startswith="story-given-up")
    return {
        "list": f"{LIST}?q={dead.principal}",
        "record": f"{LIST}{dead.pk}/change/",
        "dashboard": f"{LIST}dashboard/",
        "confirmation": f"{LIST}act/resolve-landed/?records={dead.pk.hex}",
    }


def main() -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("There is no chromium to take pictures with.\n")
        return 2
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as url:
        take(chromium, url, pages())
    return 0


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The payments service with its seeded data in a database of the moment."""
    database = f"sqlite:///{folder}/pictures.sqlite3"
    os.environ.update(DATABASE_URL=database, DJANGO_SETTINGS_MODULE="testproject.settings", DJANGO_DEBUG="1")
    os.environ["IDEMPOTENCY_COUNT_OUTCOMES"] = "1"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    call_command("seed", "--history", verbosity=0)
    from testproject.servers import free_port, start

    port = free_port()
    command = ("django", "runserver", f"127.0.0.1:{port}", "--noreload", "--insecure")
    server = start("runserver", port, *command, folder=folder)
    try:
        yield server.url
    finally:
        server.stop()


def take(chromium: str, url: str, chosen: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in SCHEMES:
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type] # a Literal there
            log_in(page, url)
            for name, path in chosen.items():
                page.goto(url + path)
                page.screenshot(path=IMAGES / f"{name}-{scheme}.png", full_page=name != "list")
            page.close()
        browser.close()


def log_in(page: Any, url: str) -> None:
    page.goto(f"{url}/admin/")
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", "admin")
    page.click("[type=submit]")
    page.goto(url + LIST)
    page.click("#toggle-nav-sidebar")


if __name__ == "__main__":
    sys.exit(main())
