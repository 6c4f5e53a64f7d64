"""What a key costs: python -m benchmarks

Needs PostgreSQL: DATABASE_URL=postgresql://user@host:5432/name python -m benchmarks. A scratch database is made beside
the one named there, and dropped at the end.
"""

from __future__ import annotations

import os
import sys

NEEDS = """python -m benchmarks needs PostgreSQL, and {found}.

    DATABASE_URL=postgresql://user@127.0.0.1:5432/name python -m benchmarks

The database named there must exist and its user must be allowed to create others; nothing in it is touched."""


def main() -> int:
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        print(NEEDS.format(found=f"DATABASE_URL is {url!r}" if url else "there is no DATABASE_URL"), file=sys.stderr)
        return 2
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    import django

    django.setup()
    from benchmarks.paths import report

    return report()


if __name__ == "__main__":
    sys.exit(main())
