from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from testproject.gateway.charges import KeyReused, Order
from testproject.gateway.ledger import Ledger
from tests.kit.processes import at_once

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


def test_threads_share_one_object(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    results = at_once([lambda: ledger.charge(ORDER, "k", dedupe=True)] * 16)
    assert sorted(new for _, new in results) == [False] * 15 + [True]
    assert len({charge.id for charge, _ in results}) == 1


def test_a_cleared_ledger_is_empty_for_everybody(tmp_path: Path) -> None:
    one, other = Ledger(tmp_path / "ledger.jsonl"), Ledger(tmp_path / "ledger.jsonl")
    one.charge(ORDER, "k", dedupe=True)
    assert len(other.find("k")) == 1

    other.clear()

    assert one.charges() == []
    assert one.charge(ORDER, "k", dedupe=True)[1] is True


def test_a_reused_key_names_the_first_charge(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    charge, _ = ledger.charge(ORDER, "k", dedupe=True)
    with pytest.raises(KeyReused, match=charge.id):
        ledger.charge(Order(101, "EUR", "ada"), "k", dedupe=True)
