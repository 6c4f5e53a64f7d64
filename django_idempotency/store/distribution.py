"""Distributes the table of the records over the nodes of Citus, by scope, and brings it back.

The other tables stay where they are, on the coordinator. They hold few rows, and PostgreSQL locks those that a
maintenance job changes. As reference tables they would take one UPDATE or DELETE at a time, and no insert meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from django_idempotency.store.layout import (
    NEW,
    TABLE,
    TABLE_WAIT,
    Layout,
    Refused,
    check_dependents,
    execute,
    fetch,
    patiently,
    read_layout,
)

_HAS_CITUS: Final = "SELECT 1 FROM pg_extension WHERE extname = 'citus'"
_IS_DISTRIBUTED: Final = "SELECT 1 FROM pg_dist_partition WHERE logicalrelid = {} AND partmethod = 'h'"


class Stage(NamedTuple):
    """One statement. Those that change nothing but the catalog wait for locks a moment only."""

    statement: str
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """What is left to do, one statement after the other. A run that was stopped is continued by the next one."""

    using: str
    stages: list[Stage]

    def list_statements(self) -> list[str]:
        return [stage.statement for stage in self.stages]

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        for statement, is_short in self.stages:
            progress(statement)
            if is_short:
                patiently(self.using, TABLE_WAIT, partial(execute, self.using, [statement]))
            else:
                execute(self.using, [statement])
        return {"primary_key": read_layout(self.using).primary_key, "statements": len(self.stages)}


def plan_distribution(using: str, *, colocate_with: str, reverse: bool, dry_run: bool) -> Distribution:
    """Return how to distribute the table, or how to bring it back.

    Refused if there is nothing to do, or if it cannot be done. A dry run needs no Citus.
    """
    has_citus = bool(fetch(using, _HAS_CITUS))
    if not has_citus and not dry_run:
        raise Refused("This database does not have the extension citus: CREATE EXTENSION citus comes first.")
    layout = read_layout(using)
    if layout.partitions or layout.copy is not None:
        raise Refused(f"{TABLE} is partitioned, or a run has begun to: run idempotency_partition --reverse first.")
    is_distributed = has_citus and bool(fetch(using, _IS_DISTRIBUTED.format(layout.table)))
    table = _literal(layout.name(TABLE))
    if reverse:
        gather = [Stage(f"SELECT undistribute_table({table})")] if is_distributed else []
        stages = [*gather, *_rekey(layout, "id")]
    else:
        where = f"{table}, 'scope', colocate_with => {_literal(colocate_with)}"
        spread = [] if is_distributed else [Stage(f"SELECT create_distributed_table_concurrently({where})")]
        stages = [*_rekey(layout, "id, scope"), *spread]
    if not stages:
        raise Refused(f"{TABLE} is {'not ' if reverse else ''}distributed already.")
    if not reverse:
        check_dependents(using)
    return Distribution(using, stages)


def _rekey(layout: Layout, columns: str) -> list[Stage]:
    """Change the primary key. Only the last statement locks the table; an index that was not finished is made anew."""
    if layout.primary_key == f"PRIMARY KEY ({columns})":
        return []
    key, table = f"{TABLE}_pkey", layout.name(TABLE)
    index = f"{NEW}_pkey"
    return [
        Stage(f"DROP INDEX CONCURRENTLY IF EXISTS {layout.name(index)}"),
        Stage(f"CREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} ({columns})"),
        Stage(f"ALTER TABLE {table} DROP CONSTRAINT {key}, ADD CONSTRAINT {key} PRIMARY KEY USING INDEX {index}", True),
    ]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
