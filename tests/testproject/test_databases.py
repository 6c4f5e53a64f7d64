from __future__ import annotations

from pathlib import Path

import pytest

from testproject.databases import from_url


def parsed(url: str, tmp_path: Path) -> dict[str, object]:
    database = from_url(url, base=tmp_path)
    return {name: database[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT") if name in database}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://root@127.0.0.1:5432/shop", ("shop", "root", "", "127.0.0.1", "5432")),
        ("postgres://me:p%40ss@db/shop", ("shop", "me", "p@ss", "db", "")),
        ("postgresql://postgres:@/shop?host=/run/socket", ("shop", "postgres", "", "/run/socket", "")),
        ("mysql://root@127.0.0.1:3306/shop", ("shop", "root", "", "127.0.0.1", "3306")),
    ],
)
def test_a_server_is_read_from_its_url(url: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    assert tuple(parsed(url, tmp_path).values()) == expected


def test_options_of_the_driver_stay_options(tmp_path: Path) -> None:
    database = from_url("postgresql://root@db/shop?sslmode=require", base=tmp_path)
    assert database["OPTIONS"] == {"sslmode": "require"}


def test_sqlite_paths_are_relative_to_the_project_or_absolute(tmp_path: Path) -> None:
    assert parsed("sqlite:///new/db.sqlite3", tmp_path) == {"NAME": str(tmp_path / "new" / "db.sqlite3")}
    assert parsed(f"sqlite:///{tmp_path}/own.sqlite3", Path("/elsewhere")) == {"NAME": f"{tmp_path}/own.sqlite3"}
    assert (tmp_path / "new").is_dir()


def test_sqlite_tests_use_a_file_that_threads_and_processes_can_share(tmp_path: Path) -> None:
    database = from_url("sqlite:///db.sqlite3", base=tmp_path)
    assert Path(database["TEST"]["NAME"]).is_absolute()
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_an_unknown_kind_is_refused_with_examples(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'oracle://x/y'.*sqlite:///db\.sqlite3"):
        from_url("oracle://x/y", base=tmp_path)
