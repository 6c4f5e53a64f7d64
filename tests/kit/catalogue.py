"""The package's texts for translators, and a catalogue of translations, without the programs of gettext."""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.utils.translation.template import templatize

PACKAGE = Path(__file__).resolve().parents[2] / "django_idempotency"
MARKS = {"_", "gettext", "gettext_lazy", "gettext_noop"}
PLURAL_MARKS = {"ngettext", "ngettext_lazy"}
PLACEHOLDERS = re.compile(r"%(?:\(\w+\))?[-#0 +]*(?:\d+|\*)?(?:\.\d+)?[a-z%]")

Texts = tuple[str, ...]  # one, or singular and plural


@dataclass
class Message:
    """One entry of a .po file."""

    comments: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)

    @property
    def is_fuzzy(self) -> bool:
        return any(line.startswith("#,") and "fuzzy" in line for line in self.comments)


def parse_po(text: str) -> dict[Texts, Message]:
    """Return the entries of a .po file, the header under ("",)."""
    found: dict[Texts, Message] = {}
    for block in text.split("\n\n"):
        message = Message()
        into = message.source
        for line in block.strip().splitlines():
            if line.startswith("#"):
                message.comments.append(line)
                continue
            if line.startswith("msg"):
                into = message.target if line.startswith("msgstr") else message.source
                into.append("")
                line = line.partition(" ")[2]
            into[-1] += ast.literal_eval(line)
        if message.source:
            assert tuple(message.source) not in found, f"twice: {message.source}"
            found[tuple(message.source)] = message
    return found


def read_mo(data: bytes) -> dict[Texts, list[str]]:
    """Return what a .mo file holds; see "The Format of GNU MO Files"."""
    assert data[:4] == struct.pack("<I", 0x950412DE)
    count, sources, targets = struct.unpack_from("<3I", data, 8)

    def read(table: int, number: int) -> list[str]:
        length, start = struct.unpack_from("<2I", data, table + 8 * number)
        return data[start : start + length].decode().split("\0")

    return {tuple(read(sources, each)): read(targets, each) for each in range(count)}


def read_placeholders(text: str) -> list[str]:
    return sorted(PLACEHOLDERS.findall(text))


def find_templates() -> list[Path]:
    return sorted((PACKAGE / "templates").rglob("*.html"))


def collect_marked() -> dict[Texts, str]:
    """Return every text that the package marks for translation, and a file that has it."""
    found: dict[Texts, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(dict.fromkeys(list_marked(path.read_text()), path.name))
    for path in find_templates():
        found.update(dict.fromkeys(list_marked(as_python(path.read_text())), path.name))
    return found


def as_python(template: str) -> str:
    """Return the calls that Django's makemessages gives to xgettext for a template, one on each line."""
    text = templatize(template)
    calls = re.findall(r"\b(?:gettext|ngettext|_)\((?:u?'(?:[^'\\]|\\.)*'|u?\"(?:[^\"\\]|\\.)*\"|[\s,]|count)*\)", text)
    return "\n".join(" ".join(call.splitlines()) for call in calls)


def list_marked(source: str) -> Iterator[Texts]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            number = {**dict.fromkeys(MARKS, 1), **dict.fromkeys(PLURAL_MARKS, 2)}.get(node.func.id, 0)
            texts = [each.value for each in node.args[:number] if isinstance(each, ast.Constant)]
            if number and len(texts) == number:
                yield tuple(str(text) for text in texts)
