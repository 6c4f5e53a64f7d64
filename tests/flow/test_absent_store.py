"""The database is not there, says nothing, or is somebody else's: in either mode nothing runs."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_idempotency import signals
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.run import run_call
from tests.kit.calls import Booking, a_call, heard
from tests.kit.databases import another_alias, running

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("mode", ["leased", "atomic"]),
    pytest.mark.vendor,
]
SHORT = timedelta(seconds=1)


def nothing_runs(mode: str, alias: str) -> bool:
    call = a_call(mode=mode, claim_limit=SHORT)
    work = Booking(call, using=alias)
    with (
        heard(signals.store_failed) as failed,
        running(alias, lambda: run_call(call, work, alias)) as outcome,
        pytest.raises(StoreUnavailable),
    ):
        outcome.result(30)
    return (work.runs, len(failed)) == (0, 1)


def test_it_cannot_be_reached(mode: str, vendor: str, tmp_path: Path) -> None:
    absent = {"NAME": str(tmp_path / "absent" / "db")} if vendor == "sqlite" else {"HOST": "127.0.0.1", "PORT": "1"}
    with another_alias("absent", **absent) as alias:
        assert nothing_runs(mode, alias)


def test_it_takes_the_call_and_says_nothing(mode: str, vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no server")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = str(mute.getsockname()[1])
        with another_alias("mute", HOST="127.0.0.1", PORT=port) as alias:
            assert nothing_runs(mode, alias)


def test_another_process_holds_the_file(mode: str, vendor: str) -> None:
    if vendor != "sqlite":
        pytest.skip("only a file is locked as a whole")
    settings: Any = connection.settings_dict
    options = {**settings["OPTIONS"], "timeout": 0.1}
    with closing(sqlite3.connect(settings["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with another_alias("locked", OPTIONS=options) as alias:
            assert nothing_runs(mode, alias)
