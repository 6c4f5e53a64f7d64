"""The prose of the documentation: one word for each concept, no banned phrase, one sentence per line, short pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), *sorted((ROOT / "clients").rglob("*.md"))]
MOST_LINES = 200
LONG = {"reference", "contributing"}  # folders of pages to look something up in, not to read

# Each pattern, and what to write instead.
BANNED = {
    r"\b(some|no|any)body\b|\b(who|what)ever\b": "name the actor: the client, a worker, the provider, an operator",
    r"\bdoubts?\b|\bin doubt\b": "an unknown outcome",
    r"\bstands? (in|with|on|beside)\b": "is in, is stored in",
    r"\bgo(es)? on( with)?\b": "continue",
    r"\bcom(e|es|ing) by\b": "runs, returns",
    r"\bis told of\b|\bare told of\b": "is notified",
    r"\bha(s|ve) to do with\b": "concerns",
    r"\bslowest hundredth\b": "p99",
    r"\bforeign (call|step)s?\b": "external call",
    r"\brefusals?\b": "error response",
    r"\bdut(y|ies)\b": "maintenance job",
    r"\bderived keys?\b": "downstream key",
    r"\b(the|an|one|stored|first|same) answers?\b": "response, or stored response",
    r"\bgets? its answer\b": "gets its response",
    r"\bis over\b|\bare over\b": "has expired, has ended",
    r"\bhas room\b|\bhave room\b": "say what fits",
    r"\bas ever\b|\bfor ever\b": "as before, forever",
    r"\bsimply\b|\bjust\b|\bobviously\b|\bof course\b|\beasy\b|\beasily\b": "drop it",
    r"\bblazing|\bseamless|\bpowerful\b|\brobust\b": "say what it does",
}
FENCE = re.compile(r"\A---\n.*?^---$|^ *(`{3,}|~{3,}).*?^ *\1\s*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
TARGET = re.compile(r"\]\([^)]*\)")
LEAD = re.compile(r"^\s*(?:[-*] |\d+\. |> )*")
ENDS = re.compile(r"[.:?!…]$|[.:?!][)*\"”]+$|^\S+$")
TWO_SENTENCES = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.?!] +[A-Z]")


def by_path(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code, with their numbers; inline code is a word, and a link is its text."""
    text = FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    for number, line in enumerate(text.splitlines(), start=1):
        yield number, TARGET.sub("]", CODE.sub("x", line)).rstrip()


def test_no_banned_phrase() -> None:
    found = [
        f"{by_path(page)}:{number}: {match[0]!r}: {instead}"
        for page in PAGES
        for number, line in prose(page)
        for pattern, instead in BANNED.items()
        for match in re.finditer(pattern, line, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)


def test_one_sentence_a_line() -> None:
    """A diff of such a page shows the sentence that changed. Tables and headings are exempt."""
    found = [
        f"{by_path(page)}:{number}: {wrong}"
        for page in PAGES
        for number, line in prose(page)
        if (wrong := more_or_less_than_one_sentence(line))
    ]
    assert not found, "\n".join(found)


def more_or_less_than_one_sentence(line: str) -> str:
    text = LEAD.sub("", line)
    if not text or (text.startswith(("|", "#", "!", "[", "<", "{", "---", "**")) and not text.endswith(".")):
        return ""
    if TWO_SENTENCES.search(text):
        return "two sentences"
    continues = not ENDS.search(text) and not LEAD.match(line)[0].strip()  # type: ignore[index] # it always matches
    return "a sentence that continues on the next line" if continues else ""


def test_a_page_to_read_is_short() -> None:
    to_read = [page for page in PAGES if page.parent.name not in LONG and page.name != "CHANGELOG.md"]
    lengths = {by_path(page): page.read_text(encoding="utf-8").count("\n") for page in to_read}
    long = [f"{page}: {length} lines" for page, length in lengths.items() if length > MOST_LINES]
    assert not long, "\n".join(long)
