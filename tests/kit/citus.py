"""What Citus would refuse, found without Citus. The records are taken to be distributed by their scope.

Citus applies its rules to the tree that PostgreSQL's analysis makes of a statement. PostgreSQL stores the same tree,
with every operator and type resolved, as the body of a function in standard SQL. The rules are applied to it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

RECORDS = "idempotency_key"
DISTRIBUTED = {RECORDS, "idempotency_event", "idempotency_count"}  # events and counts may be local or reference tables
UPDATE, INSERT, DELETE = "2", "3", "4"
ROW_COUNT = "an INSERT ... SELECT without RETURNING: its row count is that of the SELECT"
INSERT_PARTS = "a common table expression or a sub-query inside an INSERT"
COLUMN_IN_STABLE = "a function that is not IMMUTABLE gets a column"
CLOCK_IN_CASE = "a function that is not IMMUTABLE inside CASE or COALESCE"
VOLATILE = "a VOLATILE function in an UPDATE or DELETE"
MUTABLE_RETURNING = "a function that is not IMMUTABLE in RETURNING"
MUTABLE_CONFLICT = "a function that is not IMMUTABLE in ON CONFLICT"
LOCK = "a lock of records that names no scope"
CORRELATED = "a correlated sub-query over records, with no scope in each of its parts"
MANY_ROWS = "an UPDATE of records that names no scope"
SUBQUERY = "an UPDATE or DELETE of records with a sub-query"

_TOKEN = re.compile(r"[{}()]|(?:\\.|[^\s{}()\\])+")
_LAZY = {"CASE", "CASEEXPR", "COALESCE", "COALESCEEXPR"}  # as PostgreSQL names them up to 15, and since 16
_STABLE_BY_KIND = {"COERCEVIAIO", "SQLVALUEFUNCTION"}
_NOTHING = "<>"


class Node:
    """One node of the tree. A field holds the list of its values, which is nearly always one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fields: dict[str, list[Any]] = {}

    def __getitem__(self, field: str) -> Any:
        return self.fields[field][0] if field in self.fields else _NOTHING


def parse(tree: str) -> Any:
    """Return PostgreSQL's text of a tree as nodes, lists and words."""
    tokens = iter(_TOKEN.findall(tree))
    return _value(next(tokens), tokens)


def _value(token: str, tokens: Iterator[str]) -> Any:
    if token == "(":
        return [_value(each, tokens) for each in iter(tokens.__next__, ")")]
    if token != "{":
        return token
    node, values = Node(next(tokens)), list[Any]()
    for each in iter(tokens.__next__, "}"):
        if each.startswith(":"):
            values = node.fields.setdefault(each[1:], [])
        else:
            values.append(_value(each, tokens))
    return node


def walk(tree: Any) -> Iterator[Node]:
    """Yield every node, and each one before what it holds."""
    if isinstance(tree, Node):
        yield tree
        tree = tree.fields.values()
    elif not isinstance(tree, list):
        return
    for part in tree:
        yield from walk(part)


def _conjuncts(tree: Any) -> Iterator[Node]:
    """Yield the conditions of which each must hold: of FROM, its joins and WHERE."""
    if isinstance(tree, list):
        for part in tree:
            yield from _conjuncts(part)
    elif isinstance(tree, Node) and tree.kind in ("FROMEXPR", "JOINEXPR"):
        yield from _conjuncts([tree["fromlist"], tree["larg"], tree["rarg"], tree["quals"]])
    elif isinstance(tree, Node) and (tree.kind, tree["boolop"]) == ("BOOLEXPR", "and"):
        yield from _conjuncts(tree["args"])
    elif isinstance(tree, Node):
        yield tree


def _refers_outside(tree: Any, depth: int = 0) -> bool:
    if isinstance(tree, Node):
        if tree.kind == "VAR":
            return int(tree["varlevelsup"]) > depth
        return any(_refers_outside(part, depth + (tree.kind == "QUERY")) for part in tree.fields.values())
    return isinstance(tree, list) and any(_refers_outside(part, depth) for part in tree)


@dataclass
class Analyser:
    """Asks one connection, inside a transaction that its caller takes back."""

    cursor: Any

    @cached_property
    def _volatility(self) -> dict[str, str]:
        return self._ask("SELECT oid::text, provolatile::text FROM pg_proc")

    @cached_property
    def _functions(self) -> dict[str, str]:
        return self._ask("SELECT oid::text, proname::text FROM pg_proc")

    @cached_property
    def _tables(self) -> dict[str, str]:
        return self._ask("SELECT oid::text, relname::text FROM pg_class WHERE relkind IN ('r', 'p')")

    @cached_property
    def _scope(self) -> str:
        """The number of the column, which varies with what the table went through."""
        found = self._ask(f"SELECT attname::text, attnum FROM pg_attribute WHERE attrelid = '{RECORDS}'::regclass")
        return str(found["scope"])

    def _ask(self, query: str) -> dict[str, str]:
        self.cursor.execute(query)
        return dict(self.cursor.fetchall())

    def why_refused(self, sql: str) -> set[str]:
        """Return what Citus refuses in this statement, which has no parameters left."""
        self.cursor.execute(
            f"CREATE OR REPLACE FUNCTION pg_temp.statement() RETURNS void LANGUAGE sql BEGIN ATOMIC {sql}; END"
        )
        self.cursor.execute("SELECT prosqlbody::text FROM pg_proc WHERE oid = 'pg_temp.statement'::regproc")
        ((tree,),) = self.cursor.fetchall()
        ((statement,),) = parse(tree)
        queries = [node for node in walk(statement) if node.kind == "QUERY"]
        tables = {name for query in queries for name in self._names(query).values()}
        reasons = set(self._rules_of_all(statement)) if tables & DISTRIBUTED else set[str]()
        return reasons | set(self._rules_of_records(statement, queries)) if RECORDS in tables else reasons

    def _rules_of_all(self, query: Node) -> Iterator[str]:
        command, where = query["commandType"], query["jointree"]
        if command == INSERT:
            selects = any(table["subquery"] != _NOTHING for table in query["rtable"])
            if selects and query["returningList"] == _NOTHING:
                yield ROW_COUNT
            if query["cteList"] != _NOTHING or query["hasSubLinks"] == "true":
                yield INSERT_PARTS
            for conflict in (node for node in walk(query["onConflict"]) if node.kind == "ONCONFLICTEXPR"):
                if self._is_mutable(conflict):
                    yield MUTABLE_CONFLICT
        elif command in (UPDATE, DELETE):
            if "v" in map(self._volatility_of, walk(query)):
                yield VOLATILE
            yield from self._rules_of_expressions([query["targetList"], where])
        if self._is_mutable(query["returningList"]):
            yield MUTABLE_RETURNING

    def _rules_of_expressions(self, expressions: list[Any]) -> Iterator[str]:
        for node in walk(expressions):
            if node.kind in _LAZY and self._is_mutable(node):
                yield CLOCK_IN_CASE
            elif self._volatility_of(node) == "s" and any(each.kind == "VAR" for each in walk(node)):
                yield COLUMN_IN_STABLE

    def _rules_of_records(self, statement: Node, queries: list[Node]) -> Iterator[str]:
        command = statement["commandType"]
        if command == UPDATE and not self._names_scope(statement, {"OPEXPR"}):
            yield MANY_ROWS
        if command in (UPDATE, DELETE) and len(queries) > 1:
            yield SUBQUERY
        if any(map(_refers_outside, (list(query.fields.values()) for query in queries[1:]))):
            over_records = [query for query in queries if RECORDS in self._names(query).values()]
            if not all(self._names_scope(query, {"OPEXPR"}) for query in over_records):
                yield CORRELATED
        for query in queries:
            locked = {self._names(query).get(mark["rti"]) for mark in walk(query["rowMarks"])}
            # Citus refuses a list of scopes too, unless one shard has them all: then the reaper takes scope by scope.
            if RECORDS in locked and not self._names_scope(query, {"OPEXPR", "SCALARARRAYOPEXPR"}):
                yield LOCK

    def _names(self, query: Node) -> dict[str, str]:
        """Return the tables of one query, by their number in it."""
        tables = query["rtable"] if query["rtable"] != _NOTHING else []
        return {str(number): self._tables.get(table["relid"], "") for number, table in enumerate(tables, 1)}

    def _names_scope(self, query: Node, kinds: set[str]) -> bool:
        """True if a condition compares the scope with values that the statement itself holds."""
        names = self._names(query)
        for condition in _conjuncts(query["jointree"]):
            columns = [node for node in walk(condition) if node.kind == "VAR"]
            if condition.kind not in kinds or len(columns) != 1 or self._functions[condition["opfuncid"]] != "texteq":
                continue
            if (names[columns[0]["varno"]], columns[0]["varattno"]) == (RECORDS, self._scope):
                return True
        return False

    def _is_mutable(self, tree: Any) -> bool:
        return any(self._volatility_of(node) != "i" for node in walk(tree))

    def _volatility_of(self, node: Node) -> str:
        if node.kind == "NEXTVALUEEXPR":
            return "v"
        if node.kind in _STABLE_BY_KIND:
            return "s"
        return self._volatility.get(node["funcid"], self._volatility.get(node["opfuncid"], "i"))
