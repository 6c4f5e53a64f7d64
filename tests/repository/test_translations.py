"""Every text that people read is marked for translation, and the German catalogue is complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from gettext import GNUTranslations
from html.parser import HTMLParser
from pathlib import Path

import django
import pytest
from django.template.base import Lexer, TokenType

from tests.kit.catalogue import (
    PACKAGE,
    Message,
    Texts,
    collect_marked,
    find_templates,
    list_marked,
    parse_po,
    read_mo,
    read_placeholders,
)

CATALOGUES = sorted(PACKAGE.glob("locale/*/LC_MESSAGES/django.po"))
LANGUAGES = [path.parts[-3] for path in CATALOGUES]
DJANGO = Path(django.__file__).parent
DJANGOS_OWN = ("conf", "contrib/admin", "contrib/auth", "contrib/contenttypes")
SPOKEN_ATTRIBUTES = {"aria-label", "title", "alt", "placeholder", "aria-description", "summary"}
SHOWN = [
    *sorted((PACKAGE / "console").rglob("*.py")),
    *(
        PACKAGE / each
        for each in ("http/rule_sentences.py", "http/rules.py", "monitoring/findings.py", "monitoring/jobs.py")
    ),
]
UNSPOKEN_TAGS = {"script", "style", "code", "pre"}
WORD = re.compile(r"[^\W\d_]{2,}")
SENTENCE = re.compile(r"[^\W\d_]{2,}[,:;]? [^\W\d_]+")  # two words: what a name, a path or a format has not


@cache
def marked() -> dict[Texts, str]:
    return collect_marked()


def entries(path: Path) -> dict[Texts, Message]:
    found = parse_po(path.read_text())
    found.pop(("",))
    return found


def catalogues() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", CATALOGUES, ids=LANGUAGES)


def test_german_is_there() -> None:
    assert "de" in LANGUAGES


@catalogues()
def test_the_catalogue_has_each_marked_text_and_no_other(path: Path) -> None:
    needed, found = set(marked()), set(entries(path))
    plural = {texts[0] for texts in needed | found if len(texts) == 2}
    needed -= {(text,) for text in plural}  # the same text alone shares the entry
    assert sorted((texts, marked()[texts]) for texts in needed - found) == []
    assert sorted(found - needed) == []


@catalogues()
def test_each_text_is_translated_with_its_placeholders(path: Path) -> None:
    for texts, message in entries(path).items():
        assert not message.is_fuzzy, texts
        assert all(message.target), texts
        assert len(message.target) == 1 or len(texts) == 2, texts
        known = {tuple(read_placeholders(text)) for text in texts}
        for text in message.target:
            assert tuple(read_placeholders(text)) in known, text
            assert (text[:1].isspace(), text[-1:].isspace()) == (texts[0][:1].isspace(), texts[0][-1:].isspace()), text


@catalogues()
def test_the_compiled_catalogue_is_this_one(path: Path) -> None:
    compiled = read_mo(path.with_suffix(".mo").read_bytes())
    compiled.pop(("",))
    assert compiled == {texts: message.target for texts, message in entries(path).items()}


@catalogues()
def test_words_that_django_translates_are_translated_as_there(path: Path) -> None:
    """All catalogues of a process are one: another word here would be shown on the pages of Django's own apps."""
    for app in DJANGOS_OWN:
        own = DJANGO / app / "locale" / path.parts[-3] / "LC_MESSAGES" / "django.mo"
        with own.open("rb") as file:
            theirs = GNUTranslations(file)
        for texts, message in entries(path).items():
            told = theirs.gettext(texts[0])
            assert len(texts) == 2 or told in (texts[0], message.target[0]), (app, texts)


def test_templates_have_no_unmarked_text() -> None:
    found = [f"{path.name}: {text}" for path in find_templates() for text in find_unmarked(path.read_text())]
    assert not found, "\n".join(found)


def test_an_unmarked_text_is_found() -> None:
    texts: dict[str, list[str]] = {
        "<p>Not yet.</p>": ["Not yet."],
        '<p title="Copy it">{{ text }}</p>': ["Copy it"],
        '<p title="{% translate "Copy" %} it">1</p>': ["it"],
        "{% if x %}at {{ time }}{% endif %}": ["at"],
        '<input type="submit" value="Go on">': ["Go on"],
        "{% translate 'Now' %}: {{ x }} · <code>once()</code>": [],
        "{% blocktranslate %}by {{ who }}{% endblocktranslate %}<input value='on' type='hidden'>": [],
    }
    assert {template: list(find_unmarked(template)) for template in texts} == texts


class _Texts(HTMLParser):
    """Collects what a browser shows or reads aloud."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        spoken = SPOKEN_ATTRIBUTES | ({"value"} if given.get("type") in ("submit", "button") else set())
        self.found += [value or "" for name, value in attrs if name in spoken]
        if tag in UNSPOKEN_TAGS:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            self.inside.remove(tag)

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.found.append(data)


def find_unmarked(template: str) -> Iterator[str]:
    """Return the words of a template that no tag translates."""
    kept, is_marked = [], False
    template = re.sub("{% block bodyclass %}.*?{% endblock %}", "", template)
    for token in Lexer(template).tokenize():
        if token.token_type == TokenType.BLOCK:
            is_marked = token.contents.startswith("blocktrans") or (
                is_marked and not token.contents.startswith("endblocktrans")
            )
        elif token.token_type == TokenType.TEXT and not is_marked:
            kept.append(token.contents)
    parser = _Texts()
    parser.feed("".join(kept))
    yield from (text.strip() for text in parser.found if WORD.search(text))


def test_pages_have_no_unmarked_sentence() -> None:
    found = [f"{path.name}: {text}" for path in SHOWN for text in find_sentences(path.read_text())]
    assert not found, "\n".join(found)


def test_an_unmarked_sentence_is_found() -> None:
    sentences: dict[str, list[str]] = {
        "x = 'Nothing was changed.'": ["Nothing was changed."],
        "x = f'{count} keys are open'": [" keys are open"],
        "messages.error(request, 'It is gone, and stays so.')": ["It is gone, and stays so."],
        "x = _('Nothing was changed.')": [],
        "x = _(f'{count} keys are open')": [" keys are open"],
        "def f():\n    'Return a text.'\n    return 'idem-late idem-calm', '%s ago', 'Y-m-d H:i:s'": [],
        "raise AssertionError('This is no user.')": [],
    }
    assert {source: list(find_sentences(source)) for source in sentences} == sentences


def find_sentences(source: str) -> Iterator[str]:
    """Return literals of two words or more that are not marked: no docstring, markup, style class or error."""
    tree = ast.parse(source)
    known = {text for texts in list_marked(source) for text in texts}
    silent = {id(each) for node in ast.walk(tree) for each in _list_silent(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            text = re.sub(r"<[^>]*>|\b(?:idem|fill|small|value)\b[\w-]*", "", node.value)
            if node.value not in known and SENTENCE.search(text):
                yield node.value


def _list_silent(node: ast.AST) -> Iterator[ast.AST]:
    """Return the literals that no page shows: docstrings, annotations, log lines and what is raised for developers."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
        yield from ast.walk(node.body[0])
    if isinstance(node, ast.FunctionDef) and node.returns:
        yield from ast.walk(node.returns)
    if isinstance(node, ast.Raise | ast.Assert):
        yield from ast.walk(node)
    if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
        yield from ast.walk(node)
