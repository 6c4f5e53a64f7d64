"""What a command prints, in a pipe and on a terminal."""

from __future__ import annotations

from io import StringIO
from typing import Any

from django.core.management import call_command


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def said(*arguments: str, **options: Any) -> str:
    """What the command prints for a person, or a program, that reads its output from a pipe."""
    output = StringIO()
    call_command(*arguments, stdout=output, no_color=True, **options)
    return output.getvalue().strip()
