"""Every link of the built documentation leads to a file of it: python tests/repository/built_site.py FOLDER"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
MARKDOWN_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HTML_LINK = re.compile(r'(?:href|src)="(?P<target>[^"]*)"')


def links(page: Path) -> Iterator[str]:
    text = page.read_text()
    pattern, text = (HTML_LINK, text) if page.suffix == ".html" else (MARKDOWN_LINK, CODE.sub("", text))
    for link in pattern.finditer(text):
        parts = urlsplit(link["target"])
        if not parts.scheme and not parts.netloc and parts.path:
            yield unquote(parts.path)


def main(folder: Path) -> int:
    pages = [page for kind in ("*.html", "*.md", "llms.txt") for page in folder.rglob(kind)]
    assert folder / "llms.txt" in pages
    assert folder / "index.html" in pages
    dead = [f"{page.relative_to(folder)} -> {link}" for page in pages for link in links(page) if not leads(page, link)]
    sys.stderr.writelines(f"No such file: {line}\n" for line in dead)
    return 1 if dead else 0


def leads(page: Path, link: str) -> bool:
    return (page.parent / link).exists()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
