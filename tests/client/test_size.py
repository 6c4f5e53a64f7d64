"""The client stays small: what an HTTP library can do already is not written again."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

import django_idempotency.client

LIMIT = 500
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(path: Path) -> int:
    """Count the lines that are not blank, a comment or a docstring."""
    documented = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, DOCUMENTED)]
    docstrings = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    text = {line for node in docstrings for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in NO_CODE and token.start[0]]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(code - text)


def test_the_client_stays_small() -> None:
    folder = Path(django_idempotency.client.__file__).parent
    assert sum(lines_of_code(path) for path in folder.glob("*.py")) < LIMIT
