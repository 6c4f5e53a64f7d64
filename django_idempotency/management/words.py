"""What a person typed at a terminal."""

from argparse import ArgumentTypeError


def words(typed: str) -> str:
    """Bytes that are no text arrive as half characters, which no database takes."""
    try:
        typed.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError("this is no UTF-8 text.") from None
    return typed
