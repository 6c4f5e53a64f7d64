"""Moves the records into a table of another layout while requests use them: partitioned by scope, or plain again.

A trigger mirrors each change of the table into a new one beside it, in the transaction of the change. Older rows are
copied page by page. When both hold the same, one short transaction drops the table and gives the new one its name.

No key can be claimed twice in between. Until that transaction the table alone decides who wins. It waits for every
transaction that uses the table, and a statement that waits for it looks the name up again and finds the new table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django_idempotency.store.layout import (
    MIRROR,
    NEW,
    ROW_WAIT,
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

PAGES: Final = 64  # of 8 KB: some hundred records for each transaction of the copy

_COLUMNS: Final = """
    SELECT QUOTE_IDENT(attname) FROM pg_attribute
    WHERE attrelid = {table} AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_PARTS: Final = """
    SELECT c.oid::regclass::text, PG_RELATION_SIZE(c.oid) / CURRENT_SETTING('block_size')::int + 1
    FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relkind = 'r' AND {table} IN (c.oid, i.inhparent) ORDER BY 1
"""
_INDEXES: Final = """
    SELECT x.relname, COALESCE(c.contype, ''), COALESCE(PG_GET_CONSTRAINTDEF(c.oid), ''),
        SUBSTRING(PG_GET_INDEXDEF(x.oid) FROM '^CREATE (?:UNIQUE )?INDEX'),
        SUBSTRING(PG_GET_INDEXDEF(x.oid) FROM ' USING .*')
    FROM pg_index i
    JOIN pg_class x ON x.oid = i.indexrelid
    LEFT JOIN pg_constraint c ON c.conindid = x.oid AND c.conrelid = i.indrelid
    WHERE i.indrelid = {table} AND i.indisvalid ORDER BY 1
"""
_STORAGE: Final = """
    WITH part AS (
        SELECT c.reloptions, t.reloptions AS toast
        FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
        WHERE c.relkind = 'r' AND {table} IN (c.oid, i.inhparent) ORDER BY c.relname LIMIT 1
    )
    SELECT UNNEST(reloptions) FROM part UNION ALL SELECT 'toast.' || UNNEST(toast) FROM part
"""
_COMMENT_AND_GRANTS: Final = """
    SELECT FORMAT('COMMENT ON TABLE {new} IS %L', OBJ_DESCRIPTION({table}, 'pg_class'))
    WHERE OBJ_DESCRIPTION({table}, 'pg_class') IS NOT NULL
    UNION ALL
    SELECT FORMAT('GRANT %s%s ON {new} TO %s%s', a.privilege_type, ' (' || granted.attname || ')',
        COALESCE(NULLIF(a.grantee, 0)::regrole::text, 'PUBLIC'), CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
    FROM (
        SELECT relacl, NULL AS attname FROM pg_class WHERE oid = {table}
        UNION ALL SELECT attacl, QUOTE_IDENT(attname) FROM pg_attribute WHERE attrelid = {table}
    ) AS granted, ACLEXPLODE(granted.relacl) AS a
"""
# A transaction with a snapshot of its own may not see the row that it has to delete from the copy.
_MIRROR: Final = """CREATE FUNCTION {mirror}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $mirror$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM {new} WHERE scope = OLD.scope AND id = OLD.id;
        IF NOT FOUND AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            RAISE EXCEPTION 'the record is being copied' USING ERRCODE = 'serialization_failure';
        END IF;
    ELSE
        INSERT INTO {new} ({columns}) VALUES ({values})
        ON CONFLICT ({key}) DO UPDATE SET {changes};
    END IF;
    RETURN NULL;
END $mirror$"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every statement of the move. `copy` is for the pages of one part, from the first up to the last."""

    build: list[str]
    copy: str
    compare: list[str]
    switch: list[str]


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The move of all records into a table with so many partitions; 0 for a plain table."""

    using: str
    layout: Layout
    partitions: int
    plan: Plan

    def list_statements(self) -> list[str]:
        """Return what `run` executes. The copy, which it makes in steps, is one statement for each part."""
        parts = _read_parts(self.using, self.layout)
        copies = [self.plan.copy.format(part=part, first=0, last=pages) for part, pages in parts]
        build = self.plan.build if self.layout.copy is None else []
        return [*build, *copies, *self.plan.compare, *self.plan.switch]

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """Make the new table if an earlier run has not, fill it, compare, and switch."""
        layout = self.layout
        if layout.copy is None:
            progress("making the new table")
            patiently(self.using, TABLE_WAIT, partial(execute, self.using, self.plan.build))
            layout = read_layout(self.using)
        self._copy(progress)
        progress("comparing the tables")
        records = patiently(self.using, TABLE_WAIT, self._compare)
        progress("switching")
        patiently(self.using, TABLE_WAIT, partial(self._switch, layout))
        return {"records": records, "partitions": self.partitions}

    def _copy(self, progress: Callable[[str], None]) -> None:
        """Copy the records that an earlier run has not. Those that were written since the trigger exists are there."""
        parts = _read_parts(self.using, self.layout)
        total, done, copied = sum(pages for _, pages in parts), 0, 0
        for part, pages in parts:
            for first in range(0, pages, PAGES):
                last = min(first + PAGES, pages)
                text = self.plan.copy.format(part=part, first=first, last=last)
                copied += patiently(self.using, ROW_WAIT, partial(execute, self.using, [text]))
                done += last - first
                progress(f"{done:,} of {total:,} pages, {copied:,} records copied")

    def _compare(self) -> int:
        execute(self.using, self.plan.compare[:1])
        ((records, digest, copied, copied_digest),) = fetch(self.using, self.plan.compare[1])
        if (records, digest) != (copied, copied_digest):
            raise Refused(
                f"{TABLE} holds {records} records and its copy {copied}, or their contents differ. Nothing was "
                f"switched. Run the command {'with' if self.partitions else 'without'} --reverse to undo this run."
            )
        return int(records)

    def _switch(self, layout: Layout) -> None:
        execute(self.using, self.plan.switch[:1])
        if read_layout(self.using) != layout:
            raise Refused(f"Another run has changed {TABLE} in the meantime. Nothing was switched.")
        execute(self.using, self.plan.switch[1:])


@dataclass(frozen=True, slots=True)
class Undo:
    """Removes what an unfinished run left."""

    using: str
    layout: Layout

    def list_statements(self) -> list[str]:
        table, new, mirror = map(self.layout.name, (TABLE, NEW, MIRROR))
        return [
            f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
            f"DROP FUNCTION {mirror}() CASCADE",
            f"DROP TABLE {new}",
        ]

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        progress("undoing the unfinished run")
        patiently(self.using, TABLE_WAIT, partial(execute, self.using, self.list_statements()))
        return {"partitions": self.layout.partitions}


def plan_partitions(using: str, partitions: int) -> Partitioning | Undo:
    """Return how to have so many partitions, 0 for a plain table; an unfinished run is continued, or undone.

    Refused if there is nothing to do, or if it cannot be done.
    """
    layout = read_layout(using)
    if bool(layout.partitions) is bool(partitions):
        if layout.copy is None:
            raise Refused(f"{TABLE} has {layout.partitions or 'no'} partitions already.")
        return Undo(using, layout)
    if layout.copy is not None and layout.copy_partitions != partitions:
        raise Refused(
            f"An unfinished run was to make {layout.copy_partitions} partitions: continue it with the same number, "
            "or undo it with --reverse."
        )
    check_dependents(using)
    return Partitioning(using, layout, partitions, _plan(using, layout, partitions))


def _read_parts(using: str, layout: Layout) -> list[tuple[str, int]]:
    """Return the tables that hold the rows, with their sizes in pages."""
    return [(part, int(pages)) for part, pages in fetch(using, _PARTS.format(table=layout.table))]


def _plan(using: str, layout: Layout, partitions: int) -> Plan:
    table, new = layout.name(TABLE), layout.name(NEW)
    words: dict[str, Any] = {"table": layout.table, "new": new, "mirror": layout.name(MIRROR)}

    def read(query: str) -> list[tuple[Any, ...]]:
        return fetch(using, query.format(**words))

    names = [name for (name,) in read(_COLUMNS)]
    words |= {
        "columns": ", ".join(names),
        "values": ", ".join(f"NEW.{name}" for name in names),
        "changes": ", ".join(f"{name} = EXCLUDED.{name}" for name in names),
        "key": "id, scope" if partitions else "id",
    }
    storage = ", ".join(option for (option,) in read(_STORAGE))
    made_with = f" WITH ({storage})" if storage else ""
    like = f"CREATE TABLE {new} (LIKE {table} INCLUDING ALL EXCLUDING INDEXES)"
    build = [f"SET LOCAL ROLE {layout.owner}", f"{like} PARTITION BY HASH (scope)" if partitions else like + made_with]
    build += [
        f"CREATE TABLE {layout.name(f'{TABLE}_p{number:02}')} PARTITION OF {new}"
        f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number}){made_with}"
        for number in range(partitions)
    ]
    renamed = list[str]()
    for name, kind, constraint, create, how in read(_INDEXES):
        own = f"PRIMARY KEY ({words['key']})" if kind == "p" else constraint
        added = f'ALTER TABLE {new} ADD CONSTRAINT "{name}_new" {own}'
        build.append(added if kind else f'{create} "{name}_new" ON {new}{how}')
        renamed.append(f'ALTER INDEX {layout.schema}."{name}_new" RENAME TO "{name}"')
    build += [text for (text,) in read(_COMMENT_AND_GRANTS)]
    build += [
        _MIRROR.format(**words),
        f"CREATE TRIGGER {MIRROR} AFTER INSERT OR UPDATE OR DELETE ON {table}"
        f" FOR EACH ROW EXECUTE FUNCTION {words['mirror']}()",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {MIRROR}",
    ]
    digest = f"SELECT COUNT(*) AS records, SUM(HASH_RECORD_EXTENDED(ROW({words['columns']}), 0)) AS digest FROM"
    return Plan(
        build=build,
        copy=f"INSERT INTO {new} ({words['columns']}) SELECT {words['columns']} FROM ONLY {{part}}"
        " WHERE ctid >= '({first},0)' AND ctid < '({last},0)' FOR KEY SHARE ON CONFLICT DO NOTHING",
        compare=[f"ANALYZE {new}", f"SELECT a.*, b.* FROM ({digest} {table}) AS a, ({digest} {new}) AS b"],
        switch=[
            f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
            f"DROP TABLE {table}",
            f"DROP FUNCTION {words['mirror']}()",
            f"ALTER TABLE {new} RENAME TO {TABLE}",
            *renamed,
        ],
    )
