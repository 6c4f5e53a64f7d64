from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from testproject.gateway.charges import Order
from testproject.gateway.ledger import Ledger

ORDER = Order(100, "EUR", "ada")


def charge_often(path: Path) -> None:
    ledger = Ledger(path)
    for number in range(50):
        ledger.charge(ORDER, f"shared-{number}", dedupe=True)
        ledger.charge(ORDER, None, dedupe=True)


@pytest.mark.processes
def test_processes_share_one_file_and_one_truth(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=charge_often, args=(path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0, 0]
    charges = Ledger(path).charges()
    assert len([charge for charge in charges if charge.key]) == 50
    assert len([charge for charge in charges if not charge.key]) == 150
