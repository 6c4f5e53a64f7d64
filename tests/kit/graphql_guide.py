"""What the guide for GraphQL shows, made into a module, because Strawberry looks there for the names of a type."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "graphql.md"
sys.modules["shown"] = guide = ModuleType("shown")
exec(GUIDE.read_text().split("```python\n")[1].split("```")[0], vars(guide))  # noqa: S102 - the sample is ours
SHOWN: dict[str, Any] = vars(guide)
OPTIONS: dict[str, Any] = {"skip": SHOWN["changes_nothing"], "is_error": SHOWN["has_errors"]}
