"""What a person may see of a record: stored contents, and the keys with which anybody gets them."""

from typing import Any, Final, TypeVar

from django_idempotency.core.calls import ANONYMOUS
from django_idempotency.models import IdempotencyKey

R = TypeVar("R", bound=IdempotencyKey)

MAY_SEE_CONTENT: Final = "django_idempotency.view_content"
SHOWN_OF_KEY: Final = 4  # characters of a key that is hidden


def may_see_content(user: Any) -> bool:
    return bool(user.has_perm(MAY_SEE_CONTENT))


def hide_key(row: R, user: Any) -> R:
    """Cut the key of callers without credentials, who get the response for the key alone."""
    if row.principal == ANONYMOUS and not may_see_content(user):
        row.key, row.key_is_cut = f"{row.key[:SHOWN_OF_KEY]}…", True
    return row
