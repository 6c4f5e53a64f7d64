"""Claim one key after the other, and write down what was executed and acknowledged: python -m tests.nodes.claiming

The arguments are the folder of the two lists and the name of this client. It runs until it is terminated.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import count
from pathlib import Path
from time import sleep

import django

SCOPE = "tests.nodes"


def main(folder: Path, name: str) -> None:
    django.setup()
    from django.db import Error

    from django_idempotency.exceptions import IdempotencyError
    from django_idempotency.once import Claim, once

    with (folder / f"{name}.executed").open("w") as executed, (folder / f"{name}.acknowledged").open("w") as told:

        def run(key: str, _claim: Claim) -> str:
            """An effect that no database takes back."""
            print(key, file=executed, flush=True)
            return key

        for key in (f"{name} {number}" for number in count()):
            try:
                print(once(scope=SCOPE, key=key, run=partial(run, key)), file=told, flush=True)
            except (IdempotencyError, Error):
                sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
