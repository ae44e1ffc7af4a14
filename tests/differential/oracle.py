"""Evaluates a plan row by row in plain Python: what trireme must return in both languages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from differential import oracle_relations as relations
from differential.expressions import columns
from differential.functions import FILTERS, FLAT_MAPS, MAPS
from differential.oracle_expressions import Lossy, Overflows, Unsupported, evaluate, kind_of
from differential.tables import value_of

Row = dict[str, Any]


@dataclass
class Frame:
    """Rows with the types of their columns. `ordered`: whether the order of the rows is defined."""

    kinds: dict[str, str]
    rows: list[Row]
    ordered: bool = True
    loose: set[str] = field(default_factory=set)  # columns whose type a function determines, or a text file
    lossy: bool = False  # an error is also right
    taken: int | None = None  # only this number of the rows, of an order that is not defined
    rounded: set[str] = field(default_factory=set)  # sums and means of floats: no keys, as the last digit may differ

    def only(self, names: list[str]) -> Frame:
        rows = [{name: row[name] for name in names} for row in self.rows]
        kinds = {name: self.kinds[name] for name in names}
        return replace(self, kinds=kinds, rows=rows, loose=self.loose & set(names), rounded=self.rounded & set(names))


@dataclass
class Expected:
    """`frame`, `value` or an error. `fails`: "never", "may" or "must". `sampled`: the rows are some of the frame's."""

    frame: Frame | None = None
    value: Any = None
    fails: str = "never"
    sampled: bool = False
    tolerant: bool = False  # of rounding: sums, means


def run(plan: dict[str, Any]) -> Expected:
    tables = plan["tables"]
    node = plan["dataset"]
    steps = node["steps"]
    try:
        frame = dataset(node, tables)
    except Overflows as error:
        return Expected(value=str(error), fails="must" if error.args[-1] is True else "may")
    sampled = bool(steps) and steps[-1]["op"] == "sample" and 0 < steps[-1]["fraction"] < 1
    fails = "may" if frame.lossy else "never"
    result = plan["result"]
    if result["kind"] == "rows":
        return Expected(frame, fails=fails, sampled=sampled)
    if result["kind"] == "count":
        return Expected(value=len(frame.rows) if frame.taken is None else frame.taken, fails=fails)
    if sampled or frame.taken is not None:
        raise Unsupported("an aggregate of a sample")
    column = result["column"]
    values = [row[column] for row in frame.rows]
    if result["kind"] == "unique":
        relations.check_not_rounded(frame, [column])
        found = relations.distinct(values)
        kept = [value for value in found if value is not None or not result["ignore_nulls"]]
        return Expected(value=relations.Set(kept) if not frame.ordered else kept, fails=fails)
    made = relations.over_all(result["kind"], values, frame.kinds[column], result["ignore_nulls"])
    return Expected(value=made, fails=fails, tolerant=result["kind"] in ("sum", "mean", "std"))


def dataset(node: dict[str, Any], tables: list[Any]) -> Frame:
    frame = load(tables[node["source"]["table"]])
    for index, step in enumerate(node["steps"]):
        try:
            frame = apply(frame, step, tables)
        except Overflows as error:
            raise Overflows(str(error), index == len(node["steps"]) - 1) from None
    return frame


def load(table: dict[str, Any]) -> Frame:
    kinds = {name: kind for name, kind in table["columns"]}
    rows = [
        {name: value_of(value, kind) for (name, kind), value in zip(table["columns"], row, strict=True)}
        for row in table["rows"]
    ]
    return Frame(kinds, rows)


def apply(frame: Frame, step: dict[str, Any], tables: list[Any]) -> Frame:
    others = [dataset(other, tables) for other in step.get("others", [])]
    if any(each.taken is not None for each in (frame, *others)):
        raise Unsupported("more operations on some rows of an unknown order")
    arguments = {key: value for key, value in step.items() if key not in ("op", "others")}
    if others:
        arguments["others"] = others
    return _STEPS[step["op"]](frame, **arguments)


def _filter(frame: Frame, expression: Any) -> Frame:
    kept, lossy = [], frame.lossy
    for row in frame.rows:
        try:
            if evaluate(expression, row, frame.kinds) is True:
                kept.append(row)
        except Lossy:
            lossy = True
            raise Unsupported("a comparison that loses digits") from None
    return replace(frame, rows=kept, lossy=lossy)


def _with_column(frame: Frame, name: str, expression: Any) -> Frame:
    kind = kind_of(expression, frame.kinds)
    rows = []
    for row in frame.rows:
        try:
            rows.append(row | {name: evaluate(expression, row, frame.kinds)})
        except Lossy:
            raise Unsupported("a comparison that loses digits") from None
    rounded = frame.rounded - {name}
    if columns(expression) & frame.rounded:
        rounded = rounded | {name}
    return replace(frame, kinds=frame.kinds | {name: kind}, rows=rows, loose=frame.loose - {name}, rounded=rounded)


def _rename(frame: Frame, names: dict[str, str]) -> Frame:
    new = {name: names.get(name, name) for name in frame.kinds}
    if len(set(new.values())) < len(new):
        raise Unsupported("two columns of one name")
    kinds = {new[name]: kind for name, kind in frame.kinds.items()}
    rows = [{new[name]: value for name, value in row.items()} for row in frame.rows]
    loose, rounded = ({new[name] for name in names} for names in (frame.loose, frame.rounded))
    return replace(frame, kinds=kinds, rows=rows, loose=loose, rounded=rounded)


def _map(frame: Frame, function: str, column: str) -> Frame:
    rows = [MAPS[function](row, column) for row in frame.rows]
    kinds = dict(frame.kinds)
    if function == "is_missing":
        if not rows:
            raise Unsupported("a new column of a function that is never called")
        kinds["missing"] = "bool"
    if frame.kinds[column] == "int64" and any(abs(row[column] or 0) >= 2**63 for row in rows):
        raise Unsupported("an integer of Python")
    return replace(frame, kinds=kinds, rows=rows, loose=set(kinds))


def _flat_map(frame: Frame, function: str, column: str) -> Frame:
    rows = [made for row in frame.rows for made in FLAT_MAPS[function](row, column)]
    return replace(frame, rows=rows, loose=set(frame.kinds))


def _map_batches(frame: Frame, function: str, column: str, batch_size: int | None) -> Frame:
    rows = frame.rows
    if function == "double":
        rows = [row | {column: row[column] * 2} for row in rows]
        if frame.kinds[column] == "int64" and any(not -(2**63) <= row[column] < 2**63 for row in rows):
            raise Unsupported("a batch function that overflows")
    return replace(frame, rows=rows, loose=set(frame.kinds))


def _cut(frame: Frame, start: int, stop: int) -> Frame:
    rows = frame.rows[start:stop]
    if not frame.ordered and 0 < len(rows) < len(frame.rows):
        return replace(frame, taken=len(rows))
    return replace(frame, rows=rows)


def _split(frame: Frame, parts: int, part: int) -> Frame:
    rows = len(frame.rows)
    edges = [-(-rows * index // parts) for index in range(parts + 1)]
    return _cut(frame, edges[part], edges[part + 1])


def _split_at(frame: Frame, indices: list[int], part: int) -> Frame:
    edges = [0, *(min(index, len(frame.rows)) for index in indices), len(frame.rows)]
    return _cut(frame, edges[part], edges[part + 1])


def _train_test(frame: Frame, test: int | float, part: int) -> Frame:
    rows = len(frame.rows)
    if rows < 2 or (isinstance(test, int) and test >= rows):
        raise Unsupported("too few rows for two parts")
    edge = rows - test if isinstance(test, int) else min(max(int(rows * (1 - test) + 1e-9), 1), rows - 1)
    return _cut(frame, 0, edge) if part == 0 else _cut(frame, edge, rows)


def _store(frame: Frame, format: str) -> Frame:
    if format == "parquet":
        return frame
    return replace(frame, loose=set(frame.kinds))


def _sample(frame: Frame, fraction: float, seed: int) -> Frame:
    return replace(frame, rows=[]) if fraction == 0 else frame


_STEPS: dict[str, Any] = {
    "filter": _filter,
    "filter_rows": lambda frame, function, column: replace(
        frame, rows=[row for row in frame.rows if FILTERS[function](row, column)]
    ),
    "with_column": _with_column,
    "select": lambda frame, columns: frame.only(columns),
    "drop": lambda frame, columns: frame.only([name for name in frame.kinds if name not in columns]),
    "rename": _rename,
    "map": _map,
    "flat_map": _flat_map,
    "map_batches": _map_batches,
    "sort": relations.sort,
    "groupby": relations.groupby,
    "join": relations.join,
    "union": relations.union,
    "zip": relations.zip_columns,
    "limit": lambda frame, rows: _cut(frame, 0, rows),
    "split": _split,
    "split_at": _split_at,
    "train_test": _train_test,
    "shuffle": lambda frame, seed, window=None: replace(frame, ordered=False),
    "block_order": lambda frame, seed: replace(frame, ordered=False),
    "sample": _sample,
    "repartition": lambda frame, blocks: frame,
    "materialize": lambda frame: frame,
    "store": _store,
}
