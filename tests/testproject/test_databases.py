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
        ("postgres://me:p%40ss@db/shop", ("shop", "me", "p@ss", "db", "")),
        ("postgresql://postgres:@/shop?host=/run/socket", ("shop", "postgres", "", "/run/socket", "")),
    ],
)
def test_a_server_is_read_from_its_url(url: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    assert tuple(parsed(url, tmp_path).values()) == expected


def test_a_pooler_gets_no_cursors_of_the_server(tmp_path: Path) -> None:
    database = from_url("postgresql://me@db:6432/shop?pooler=transaction&sslmode=disable", base=tmp_path)
    assert database["DISABLE_SERVER_SIDE_CURSORS"] is True
    assert database["OPTIONS"] == {"sslmode": "disable"}


def test_an_unknown_kind_is_refused_with_examples(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'oracle://x/y'.*sqlite:///db\.sqlite3"):
        from_url("oracle://x/y", base=tmp_path)
