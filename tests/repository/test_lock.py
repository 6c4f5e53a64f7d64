"""requirements.lock pins what pyproject.toml names, on every Python that it names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dev import list_pins

ROOT = Path(__file__).resolve().parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
BLOCKS = re.findall(r"^([a-z].*?)(?: \\\n((?: .*\n)*))", LOCK, re.M)
PINS = [Requirement(line) for line, _rest in BLOCKS]
PYTHONS = re.findall(r"Python :: (3\.\d+)", " ".join(DECLARED["project"]["classifiers"]))
NOT_PINNED_EVERYWHERE = {"beat"}  # an extra that `all` leaves out, because it does not allow every Django


def declared() -> Iterator[Requirement]:
    extras = DECLARED["project"]["optional-dependencies"]
    groups = [*DECLARED["dependency-groups"].values(), DECLARED["project"]["dependencies"]]
    groups += [extra for name, extra in extras.items() if name not in NOT_PINNED_EVERYWHERE | {"all"}]
    return (Requirement(one) for group in groups for one in group if isinstance(one, str))


def applies(requirement: Requirement, python: str) -> bool:
    environment = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux"}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def test_the_lock_names_no_address_and_is_exact() -> None:
    assert "://" not in LOCK
    assert "@" not in LOCK
    assert len(PINS) == LOCK.count("==") - LOCK.count(" == ")
    assert [line for line, rest in BLOCKS if "--hash=sha256:" not in rest] == []
    assert [str(pin) for pin in PINS if not re.fullmatch(r"==(\d+!)?[\w.]+", str(pin.specifier)) or pin.extras] == []


def test_every_requirement_has_one_pin_that_satisfies_it() -> None:
    for python in PYTHONS:
        found = [pin for pin in PINS if applies(pin, python)]
        pins = {pin.name: str(pin.specifier).removeprefix("==") for pin in found}
        assert len(pins) == len(found), python
        needed = [requirement for requirement in declared() if applies(requirement, python)]
        unmet = [each for each in needed if not each.specifier.contains(pins[canonicalize_name(each.name)])]
        assert unmet == [], python


def test_every_extra_is_pinned_on_some_python() -> None:
    extras = DECLARED["project"]["optional-dependencies"]
    names = {canonicalize_name(Requirement(one).name) for extra in extras.values() for one in extra}
    assert names - {canonicalize_name(DECLARED["project"]["name"])} <= {pin.name for pin in PINS}


def test_the_latest_django_that_a_python_allows_is_pinned() -> None:
    """An older one is pinned if uv takes what a dependency allows on Python 3.11 for all versions of Python."""
    pinned = {
        str(pin.specifier): [python for python in PYTHONS if applies(pin, python)]
        for pin in PINS
        if pin.name == "django"
    }
    series = {specifier.removeprefix("==").rpartition(".")[0]: pythons for specifier, pythons in pinned.items()}
    latest = re.findall(r"Django :: ([\d.]+)", " ".join(DECLARED["project"]["classifiers"]))[-1]
    assert series == {"5.2": ["3.11"], latest: ["3.12", "3.13", "3.14"]}


def test_a_group_is_installed_with_all_that_it_needs_and_not_with_the_others() -> None:
    """`dev.py` reads the lock itself, because pip takes hashes only of exact versions."""
    listed = {group: set(re.findall(r"^([a-z].*?)==", list_pins(group), re.M)) for group in ("demo", "lock")}
    assert listed["lock"] == {pin.name for pin in PINS}
    assert {"celery", "vine", "stripe", "django", "hatchling", "psycopg"} <= listed["demo"], "and what these need"
    assert listed["demo"].isdisjoint({"pytest", "mypy", "sphinx", "tox", "redis"})
