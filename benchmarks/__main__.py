"""What a key costs, and what it would cost if the view were written by hand: python -m benchmarks"""

from __future__ import annotations

import os
import sys

NEEDS = """python -m benchmarks needs a database, and there is no DATABASE_URL.

    DATABASE_URL=postgresql://user@127.0.0.1:5432/name python -m benchmarks

The database named there must exist; it is migrated and filled. On MariaDB and SQLite nothing is written by hand."""


def main() -> int:
    if not os.environ.get("DATABASE_URL"):
        print(NEEDS, file=sys.stderr)
        return 2
    from benchmarks import views

    return views.main()


if __name__ == "__main__":
    sys.exit(main())
