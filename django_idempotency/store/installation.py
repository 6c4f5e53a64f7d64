"""The id of this installation, by which a cache that several share tells their entries apart."""

import json
from typing import Final
from uuid import uuid4

from django.db import connections

from django_idempotency.models import INSTALLATION, MaintenanceRun
from django_idempotency.store.limits import limited

READ_SECONDS: Final = 2.0
_known: dict[tuple[str, str, str], str] = {}


def read_installation(using: str, schema: str) -> str:
    """Return the id that the database holds, made when it was first asked for. A process reads it once."""
    place = using, str(connections[using].settings_dict["NAME"]), schema
    found = _known.get(place)
    if found is None:
        with limited(using, READ_SECONDS):
            row, is_new = MaintenanceRun.objects.using(using).get_or_create(
                job=INSTALLATION, defaults={"counts": json.dumps({"id": uuid4().hex})}
            )
        found = str(json.loads(row.counts)["id"])
        if not is_new:  # a new one may be rolled back
            _known[place] = found
    return found
