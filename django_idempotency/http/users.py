"""Name users and credentials by their primary key."""

import re
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db.models.options import Options


def primary_key(holder: Any, own_model: str = "") -> str:
    """Return the primary key, prefixed with the model's label. Empty if there is none.

    Without the label a customer and an employee with the same primary key would share a scope. Users of `own_model`,
    and of models that extend it, go without one: their primary key is that of their row in `own_model`.
    """
    models = [base._meta for base in holder.__class__.__mro__ if isinstance(getattr(base, "_meta", None), Options)]
    own = next((options for options in models if options.label.lower() == own_model), None)
    number = getattr(holder, "pk" if own is None else own.pk.attname, None)
    if number is None or number == "":
        return ""
    if not models:
        kind = holder.__class__  # unlike type(), the class behind a lazy object
        return f"{kind.__module__}.{kind.__qualname__}:{_write_number(number)}"
    try:
        number = (own or models[0]).pk.to_python(number)  # a row's number may come from a token, as text
    except ValidationError:
        return ""
    return f"{models[0].concrete_model._meta.label_lower}:{number}" if own is None else str(number)


_PLAIN_TEXT: Final = re.compile(r"""(?!-?\d+\Z)[^\s()'"][^()'"]*""")


def _write_number(number: object) -> str:
    """Return a primary key as text, different for values of different types: 1 is not "1"."""
    if type(number) is int or (isinstance(number, str) and _PLAIN_TEXT.fullmatch(number)):
        return str(number)
    return repr(number) if isinstance(number, str) else f"{type(number).__name__}({number})"
