"""Check the built documentation: python tests/repository/built_site.py FOLDER

Every link leads to a file, every public name is in the inventory, every page has a title and a description and is light
enough for a telephone, the search finds what readers in trouble type, and the export for agents has every page.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
MARKDOWN_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HTML_LINK = re.compile(r'(?:href|src)="(?P<target>[^"]*)"')
PICTURE = re.compile(r'<img[^>]*? src="(?P<target>[^"]+)"')
ONE_THEME = re.compile(r'<img[^>]*class="[^"]*only-dark[^>]*>')  # a browser fetches it instead of the light one
DESCRIPTION = re.compile(r'<meta name="description" content="[^"]{20,}')
TITLE = re.compile(r"<title>[^<]{3,}</title>")
MOST_BYTES = 400_000
HEAVY = {
    "how-to/admin.html": 500_000,
    "how-to/dashboard.html": 450_000,
    "how-to/incidents.html": 500_000,
}  # pages about pictures
SEARCHED = ("n409", "n422", "faq")  # numbers are indexed with an n
GENERATED = {"genindex.html", "py-modindex.html", "search.html"}


def links(page: Path) -> Iterator[str]:
    text = page.read_text()
    pattern, text = (HTML_LINK, text) if page.suffix == ".html" else (MARKDOWN_LINK, CODE.sub("", text))
    for link in pattern.finditer(text):
        parts = urlsplit(link["target"])
        if not parts.scheme and not parts.netloc and parts.path:
            yield unquote(parts.path)


def leads(page: Path, link: str) -> bool:
    return (page.parent / link).exists()


def dead_links(folder: Path) -> Iterator[str]:
    pages = [page for kind in ("*.html", "*.md", "llms.txt") for page in folder.rglob(kind)]
    assert {folder / "llms.txt", folder / "index.html"} <= set(pages)
    for page in pages:
        yield from (f"{name(folder, page)}: no such file: {link}" for link in links(page) if not leads(page, link))


def name(folder: Path, page: Path) -> str:
    return str(page.relative_to(folder))


def missing_names(folder: Path) -> Iterator[str]:
    """The names that the page of the API lists, which a test compares with the code."""
    listed = (folder / "reference" / "api.md").read_text()
    packed = (folder / "objects.inv").read_bytes().split(b"\n", 4)[4]
    inventory = {line.split(" ")[0] for line in zlib.decompress(packed).decode().splitlines() if " py:" in line}
    assert inventory
    for section in re.split(r"^## (?=django_idempotency)", listed, flags=re.MULTILINE)[1:]:
        module, _, text = section.partition("\n")
        cells = re.findall(r"^\| (`.+?) \| .+ \|$", text.split("\n## ")[0], re.MULTILINE)
        for each in re.findall(r"`(\w+)`", " ".join(cells)):
            if f"{module}.{each}" not in inventory:
                yield f"objects.inv: {module}.{each} is missing"


def poor_pages(folder: Path) -> Iterator[str]:
    for page in folder.rglob("*.html"):
        text = page.read_text()
        if not TITLE.search(text):
            yield f"{name(folder, page)}: it has no title"
        if page.name not in GENERATED and not DESCRIPTION.search(text):
            yield f"{name(folder, page)}: it has no description"
        pictures = {picture["target"] for picture in PICTURE.finditer(ONE_THEME.sub("", text))}
        size = page.stat().st_size + sum((page.parent / unquote(each)).stat().st_size for each in pictures)
        if size > HEAVY.get(name(folder, page), MOST_BYTES):
            yield f"{name(folder, page)}: {size} bytes with its pictures"


def unfound(folder: Path) -> Iterator[str]:
    index = (folder / "searchindex.js").read_text()
    for term in SEARCHED:
        if f'"{term}":' not in index and f"{term}:" not in index:
            yield f"searchindex.js: it does not find {term}"


def missing_from_export(folder: Path) -> Iterator[str]:
    export = (folder / "llms-full.txt").read_text()
    for page in folder.rglob("*.md"):
        if f"\nSource: {name(folder, page)}\n" not in export:
            yield f"llms-full.txt: {name(folder, page)} is missing"


CHECKS = (dead_links, missing_names, poor_pages, unfound, missing_from_export)


def main(folder: Path) -> int:
    found = [complaint for check in CHECKS for complaint in check(folder)]
    sys.stderr.writelines(f"{complaint}\n" for complaint in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
