"""Draws plans: plain data that JSON can hold. The oracle follows each step, so that every drawn plan is valid."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from differential import oracle, tables
from differential.draw_expressions import draw_condition, draw_value_expression
from differential.oracle import Frame
from differential.oracle_expressions import Overflows, Unsupported

SIMPLE = ("int64", "float64", "string", "bool")
KEYS = ("int64", "int32", "string", "bool", "float64", "date32", "timestamp[us]", "uint8", "binary", *tables.DECIMALS)
ALL = (
    *tables.INTEGERS,
    *tables.FLOATS,
    *tables.STRINGS,
    *tables.DECIMALS,
    *tables.TIMES,
    *tables.NESTED,
    *tables.OTHERS,
)
JOINS = ("inner", "left", "right", "full", "semi", "anti", "left_outer", "right_outer", "full_outer", "outer")
JOINS += ("left_semi", "right_semi", "left_anti", "right_anti")
AGGREGATES = ("count", "sum", "min", "max", "mean", "std")


@dataclass
class Draft:
    """A plan being drawn, with the rows so far."""

    rng: random.Random
    tables: list[dict[str, Any]]
    kinds: tuple[str, ...]

    def source(self, table: int | None = None) -> tuple[dict[str, Any], Frame]:
        if table is None:
            self.tables.append(tables.draw_table(self.rng, self.kinds))
            table = len(self.tables) - 1
        rng = self.rng
        source: dict[str, Any] = {"table": table, "from": rng.choice(("memory", "parquet"))}
        if source["from"] == "memory":
            source["chunks"] = rng.choice((1, 1, 3))
        else:
            source |= {"files": rng.choice((1, 2, 3)), "group": rng.choice((1, 3, 10, 100))}
        return {"source": source, "steps": []}, oracle.load(self.tables[table])


def draw(seed: int, number: int) -> dict[str, Any]:
    """Plan `number` of a seed, always the same."""
    rng = random.Random(f"differential {seed} {number}")
    kinds = rng.choice((ALL, SIMPLE, SIMPLE, KEYS, (*tables.INTEGERS, *tables.FLOATS)))
    draft = Draft(rng, [], kinds)
    node, frame = draft.source()
    for _ in range(rng.choice((1, 1, 2, 3, 4, 5))):
        step, after = _draw_step(draft, frame)
        if step is None or after is None:
            continue
        node["steps"].append(step)
        frame = after
        if step["op"] == "sample" or frame.taken is not None:
            break
    return {"tables": draft.tables, "dataset": node, "result": _draw_result(rng, node, frame)}


def _draw_step(draft: Draft, frame: Frame) -> tuple[dict[str, Any] | None, Frame | None]:
    for _ in range(20):
        op = draft.rng.choice(tuple(_DRAWS))
        step = _DRAWS[op](draft, frame)
        if step is None:
            continue
        step = {"op": op, **step}
        try:
            after = oracle.apply(frame, step, draft.tables)
        except (Unsupported, TypeError):
            continue
        except Overflows:
            if draft.rng.random() < 0.9:
                continue
            return step, None  # the last step: the plan must fail
        if len(after.rows) <= 400 and len(after.kinds) <= 12:
            return step, after
    return None, None


def _draw_result(rng: random.Random, node: dict[str, Any], frame: Frame) -> dict[str, Any]:
    sampled = node["steps"] and node["steps"][-1]["op"] == "sample"
    if sampled or rng.random() < 0.75 or not frame.kinds:
        return {"kind": "rows"}
    kind = rng.choice(("count", "unique", *AGGREGATES[1:]))
    if kind == "count":
        return {"kind": kind}
    usable = tables.INTEGERS + tables.FLOATS + (tables.DECIMALS if kind in ("mean", "std") else ())
    if kind == "unique":
        usable = (*SIMPLE, *tables.INTEGERS, "large_string")
    names = [name for name, each in frame.kinds.items() if each in usable and name not in frame.loose]
    if not names:
        return {"kind": "rows"}
    result = {"kind": kind, "column": rng.choice(names), "ignore_nulls": rng.random() < 0.7}
    try:
        values = [row[result["column"]] for row in frame.rows]
        if kind != "unique":
            oracle.relations.over_all(kind, values, frame.kinds[result["column"]], result["ignore_nulls"])
    except (Unsupported, Overflows):
        return {"kind": "rows"}
    return result


def _names(draft: Draft, frame: Frame, kinds: tuple[str, ...]) -> list[str]:
    return [name for name, kind in frame.kinds.items() if kind in kinds and name not in frame.loose]


def _some(rng: random.Random, names: list[str], most: int = 10) -> list[str]:
    return rng.sample(names, rng.randint(1, min(len(names), most)))


def _filter(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    expression = draw_condition(draft.rng, frame.kinds, frame.loose)
    return None if expression is None else {"expression": expression}


def _with_column(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    expression = draw_value_expression(draft.rng, frame.kinds, frame.loose)
    name = draft.rng.choice(("new", "other", *frame.kinds))
    return None if expression is None else {"name": name, "expression": expression}


def _rename(draft: Draft, frame: Frame) -> dict[str, Any]:
    chosen = _some(draft.rng, list(frame.kinds), 2)
    return {"names": {name: draft.rng.choice((f"{name}{name}", *frame.kinds)) for name in chosen}}


def _map(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    names = _names(draft, frame, ("int64", "float64"))
    if not names or not set(frame.kinds.values()) <= set(SIMPLE):
        return None
    return {"function": draft.rng.choice(("identity", "add_one", "is_missing")), "column": draft.rng.choice(names)}


def _flat_map(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    if not set(frame.kinds.values()) <= set(SIMPLE):
        return None
    return {"function": draft.rng.choice(("twice", "if_set")), "column": draft.rng.choice(list(frame.kinds))}


def _filter_rows(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    if not set(frame.kinds.values()) <= set(SIMPLE):
        return None
    return {"function": draft.rng.choice(("is_set", "is_missing")), "column": draft.rng.choice(list(frame.kinds))}


def _map_batches(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    if not set(frame.kinds.values()) <= set(SIMPLE):
        return None
    batch_size = draft.rng.choice((None, 1, 4, 100))
    full = [
        name for name in _names(draft, frame, ("int64", "float64")) if all(row[name] is not None for row in frame.rows)
    ]
    if draft.rng.random() < 0.5 and full:
        whole = [name for name in frame.kinds if all(row[name] is not None for row in frame.rows)]
        if len(whole) == len(frame.kinds):  # a numpy batch has floats for integers with nulls
            return {"function": "double", "column": draft.rng.choice(full), "batch_size": batch_size}
    return {"function": "same", "column": next(iter(frame.kinds)), "batch_size": batch_size}


def _sort(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    names = _names(draft, frame, tuple(kind for kind in ALL if kind not in PENDING_KEYS))
    if not names:
        return None
    return {"keys": _some(draft.rng, names, 3), "descending": draft.rng.random() < 0.4}


PENDING_KEYS = ("null", *tables.NESTED)


def _groupby(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    names = _names(draft, frame, tuple(kind for kind in ALL if kind not in PENDING_KEYS))
    if not names:
        return None
    keys = _some(draft.rng, names, 2)
    aggregates: list[list[Any]] = [["count", None]]
    for _ in range(draft.rng.randint(0, 3)):
        column = draft.rng.choice(list(frame.kinds))
        one = [draft.rng.choice(AGGREGATES), column]
        if column not in keys and one not in aggregates and column not in frame.loose:
            aggregates.append(one)
    return {"keys": keys, "aggregates": aggregates}


def _join(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    node, other = _another(draft, frame)
    pairs = [
        (mine, its)
        for mine in _names(draft, frame, tuple(kind for kind in ALL if kind not in PENDING_KEYS))
        for its in other.kinds
        if other.kinds[its] == frame.kinds[mine]
    ]
    if not pairs:
        return None
    chosen = draft.rng.sample(pairs, min(len(pairs), draft.rng.choice((1, 1, 2))))
    on, right_on = [mine for mine, _ in chosen], [its for _, its in chosen]
    if len(set(on)) < len(on) or len(set(right_on)) < len(right_on):
        return None
    return {"others": [node], "how": draft.rng.choice(JOINS), "on": on, "right_on": right_on, "suffix": "_right"}


def _another(draft: Draft, frame: Frame) -> tuple[dict[str, Any], Frame]:
    """Another dataset: a table of the plan again, or a new one. Sometimes filtered or sorted."""
    new = draft.rng.random() < 0.5
    node, other = draft.source(None if new else draft.rng.randrange(len(draft.tables)))
    if draft.rng.random() < 0.4:
        op = draft.rng.choice(("filter", "sort", "limit"))
        step = _DRAWS[op](draft, other)
        if step is not None:
            try:
                other = oracle.apply(other, {"op": op, **step}, draft.tables)
                node["steps"].append({"op": op, **step})
            except (Unsupported, Overflows, TypeError):
                pass
    return node, other


def _union(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    """Tables of the same columns: other rows of the same types."""
    if frame.loose:
        return None
    columns = [[name, kind] for name, kind in frame.kinds.items()]
    if not all(kind in ALL for _, kind in columns):
        return None
    others = []
    for _ in range(draft.rng.choice((1, 1, 2))):
        rows = draft.rng.choice((0, 1, 4, 12))
        values = [tables.draw_column(draft.rng, kind, rows) for _, kind in columns]
        draft.tables.append({"columns": columns, "rows": [list(row) for row in zip(*values, strict=True)]})
        others.append(draft.source(len(draft.tables) - 1)[0])
    return {"others": others}


def _zip(draft: Draft, frame: Frame) -> dict[str, Any]:
    draft.tables.append(tables.draw_table(draft.rng, draft.kinds, rows=len(frame.rows)))
    return {"others": [draft.source(len(draft.tables) - 1)[0]]}


def _split(draft: Draft, frame: Frame) -> dict[str, Any]:
    parts = draft.rng.randint(1, 4)
    return {"parts": parts, "part": draft.rng.randrange(parts)}


def _split_at(draft: Draft, frame: Frame) -> dict[str, Any]:
    indices = sorted(draft.rng.randint(0, len(frame.rows) + 2) for _ in range(draft.rng.randint(1, 3)))
    return {"indices": indices, "part": draft.rng.randint(0, len(indices))}


def _train_test(draft: Draft, frame: Frame) -> dict[str, Any]:
    return {"test": draft.rng.choice((1, 3, 0.25, 0.5)), "part": draft.rng.randint(0, 1)}


def _store(draft: Draft, frame: Frame) -> dict[str, Any] | None:
    """Parquet keeps every type; text files only what their readers infer again."""
    rng = draft.rng
    if rng.random() < 0.5:
        return {"format": "parquet"} if frame.kinds and not frame.loose else None
    format = rng.choice(("csv", "json"))
    return (
        {"format": format} if frame.rows and all(_is_text_safe(frame, name, format) for name in frame.kinds) else None
    )


def _is_text_safe(frame: Frame, name: str, format: str) -> bool:
    kind = frame.kinds[name]
    values = [row[name] for row in frame.rows]
    if kind not in SIMPLE or name in frame.loose or values[0] is None:
        return False
    given = [value for value in values if value is not None]
    if kind == "string":
        plain = all(value.isalpha() and value != "null" for value in given)
        return plain and (format == "json" or len(given) == len(values))
    if kind == "float64":
        return all(value == value and abs(value) < 1e9 for value in given) and any(value % 1 for value in given)
    return all(abs(value) < 2**53 for value in given) if kind == "int64" else True


_DRAWS: dict[str, Any] = {
    "filter": _filter,
    "with_column": _with_column,
    "select": lambda draft, frame: {"columns": _some(draft.rng, list(frame.kinds))},
    "drop": lambda draft, frame: (
        {"columns": _some(draft.rng, list(frame.kinds), len(frame.kinds) - 1)} if len(frame.kinds) > 1 else None
    ),
    "rename": _rename,
    "map": _map,
    "flat_map": _flat_map,
    "filter_rows": _filter_rows,
    "map_batches": _map_batches,
    "sort": _sort,
    "groupby": _groupby,
    "join": _join,
    "union": _union,
    "zip": _zip,
    "limit": lambda draft, frame: {"rows": draft.rng.choice((0, 1, 3, 8, 100))},
    "split": _split,
    "split_at": _split_at,
    "train_test": _train_test,
    "shuffle": lambda draft, frame: {"seed": draft.rng.randrange(100), "window": draft.rng.choice((None, None, 4, 20))},
    "block_order": lambda draft, frame: {"seed": draft.rng.randrange(100)},
    "sample": lambda draft, frame: {"fraction": draft.rng.choice((0, 1, 0.5, 0.1)), "seed": draft.rng.randrange(100)},
    "repartition": lambda draft, frame: {"blocks": draft.rng.randint(1, 5)},
    "materialize": lambda draft, frame: {},
    "store": _store,
}
