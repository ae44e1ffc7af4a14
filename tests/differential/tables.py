"""Tables of a plan as plain data, their Arrow form, and how they are drawn.

A table is {"columns": [[name, type], ...], "rows": [[value, ...], ...]}. Values are what JSON can hold: timestamps and
dates are integers of their unit, decimals are text, bytes are hexadecimal text, NaN is JSON's NaN.
"""

from __future__ import annotations

import functools
import math
import random
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

Table = dict[str, Any]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
STRINGS = ("string", "large_string")
DECIMALS = ("decimal(9, 2)", "decimal(38, 4)")
TIMES = ("timestamp[us]", "timestamp[ns, Europe/Berlin]", "timestamp[ms, UTC]", "date32")
NESTED = ("list<int64>", "list<string>", "struct<a: int64, b: string>", "list<struct<a: int64, b: string>>")
OTHERS = ("bool", "dictionary<string>", "binary", "null")

_FIXED: dict[str, Any] = {
    **{name: getattr(pa, name)() for name in (*INTEGERS, *FLOATS, *STRINGS, "date32", "binary", "null")},
    "bool": pa.bool_(),
    "dictionary<string>": pa.dictionary(pa.int32(), pa.string()),
    "list<int64>": pa.list_(pa.int64()),
    "list<string>": pa.list_(pa.string()),
    "struct<a: int64, b: string>": pa.struct([("a", pa.int64()), ("b", pa.string())]),
    "list<struct<a: int64, b: string>>": pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
}


@functools.cache
def arrow_type(kind: str) -> Any:
    """The Arrow type of a type's name."""
    if kind in _FIXED:
        return _FIXED[kind]
    if found := re.fullmatch(r"decimal\((\d+), (\d+)\)", kind):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"timestamp\[(\w+)(?:, (.+))?\]", kind):
        return pa.timestamp(found[1], found[2])
    if found := re.fullmatch(r"list<(.+)>", kind):
        return pa.list_(arrow_type(found[1]))
    raise ValueError(f"unknown type {kind!r}")


def kind_of(arrow: Any) -> str:
    """The name of an Arrow type. The index type of a dictionary and the names of list items do not matter."""
    if pa.types.is_dictionary(arrow):
        return f"dictionary<{kind_of(arrow.value_type)}>"
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision}, {arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return f"timestamp[{arrow.unit}{', ' + arrow.tz if arrow.tz else ''}]"
    if pa.types.is_struct(arrow):
        return f"struct<{', '.join(f'{field.name}: {kind_of(field.type)}' for field in arrow)}>"
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return f"{'large_' if pa.types.is_large_list(arrow) else ''}list<{kind_of(arrow.value_type)}>"
    names = {"double": "float64", "float": "float32", "date32[day]": "date32"}
    return names.get(str(arrow), str(arrow))


def to_arrow(table: Table, chunks: int = 1) -> pa.Table:
    columns = []
    for index, (_, kind) in enumerate(table["columns"]):
        columns.append(_array([row[index] for row in table["rows"]], kind))
    names = [name for name, _ in table["columns"]]
    whole = pa.Table.from_arrays(columns, names)
    if chunks <= 1 or whole.num_rows == 0:
        return whole
    size = -(-whole.num_rows // chunks)
    return pa.concat_tables([whole.slice(start, size) for start in range(0, whole.num_rows, size)])


def _array(values: list[Any], kind: str) -> pa.Array:
    arrow = arrow_type(kind)
    if kind.startswith("decimal"):
        return pa.array([None if value is None else Decimal(value) for value in values], arrow)
    if kind == "binary":
        return pa.array([None if value is None else bytes.fromhex(value) for value in values], arrow)
    if kind == "dictionary<string>":
        return pa.array(values, pa.string()).dictionary_encode()
    if kind.startswith("timestamp"):
        return pa.array(values, pa.int64()).view(arrow)
    return pa.array(values, arrow)


def from_arrow(table: pa.Table) -> Table:
    """The plain form of a result. Decimals stay numbers: 1.0 equals 1.00."""
    columns = [plain(column) for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(table.num_rows)]
    return {"columns": [[field.name, kind_of(field.type)] for field in table.schema], "rows": rows}


def plain(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [value for chunk in column.chunks for value in chunk.view(pa.int64()).to_pylist()]
    if pa.types.is_date32(kind):
        return [value for chunk in column.chunks for value in chunk.view(pa.int32()).to_pylist()]
    values = column.to_pylist()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else value.hex() for value in values]
    return values


def value_of(value: Any, kind: str) -> Any:
    """A stored value as a value to compute with."""
    if value is not None and kind.startswith("decimal"):
        return Decimal(value)
    return value


# Drawing. Few distinct values, so that groups, joins and sorts meet equal ones; edges are frequent.

_RANGES = {name: (0, 2 ** int(name[4:]) - 1) for name in INTEGERS if name[0] == "u"} | {
    name: (-(2 ** (int(name[3:]) - 1)), 2 ** (int(name[3:]) - 1) - 1) for name in INTEGERS if name[0] == "i"
}
_TEXTS = ("", "a", "b", "B", "ab", "é", "日本", "zz", "a b", "null", "10", "9")
_NAMES = ("a", "b", "c", "d", "e", "f")


def limits(kind: str) -> tuple[int, int]:
    return _RANGES[kind]


def draw_table(
    rng: random.Random, kinds: tuple[str, ...], rows: int | None = None, columns: int | None = None
) -> Table:
    rows = rng.choice((0, 1, 2, 5, 9, 17, 30)) if rows is None else rows
    columns = rng.randint(2, 5) if columns is None else columns
    drawn = [[name, rng.choice(kinds)] for name in _NAMES[:columns]]
    values = [draw_column(rng, kind, rows) for _, kind in drawn]
    return {"columns": drawn, "rows": [list(row) for row in zip(*values, strict=True)]}


def draw_column(rng: random.Random, kind: str, rows: int) -> list[Any]:
    null_share = rng.choice((0.0, 0.0, 0.2, 0.5, 1.0 if rng.random() < 0.1 else 0.1))
    pool = [draw_value(rng, kind) for _ in range(rng.choice((2, 4, 12)))]
    return [None if rng.random() < null_share else rng.choice(pool) for _ in range(rows)]


def draw_value(rng: random.Random, kind: str) -> Any:
    if kind in INTEGERS:
        low, high = _RANGES[kind]
        edges = [value for value in (low, high, 2**53 + 1, -(2**53) - 1) if low <= value <= high]
        return rng.choice(edges) if rng.random() < 0.15 else rng.randint(max(low, -9), 9)
    if kind in FLOATS:
        special = (math.nan, 0.0, -0.0, math.inf, -math.inf)
        return rng.choice(special) if rng.random() < 0.4 else rng.randint(-36, 36) / 4
    if kind in STRINGS or kind == "dictionary<string>":
        return rng.choice(_TEXTS)
    if kind == "binary":
        return rng.choice(_TEXTS).encode().hex()
    if kind == "bool":
        return rng.random() < 0.5
    if kind.startswith("decimal"):
        places = int(kind.split(", ")[1][:-1])
        return str(Decimal(rng.randint(-500, 500)).scaleb(-places))
    if kind.startswith("timestamp"):
        return rng.choice((0, -1, 1_700_000_000_000, 1_700_000_000_001, rng.randint(-(10**12), 10**12)))
    if kind == "date32":
        return rng.randint(-3, 20_000) if rng.random() < 0.3 else rng.randint(0, 4)
    if kind == "null":
        return None
    return _draw_nested(rng, kind)


def _draw_nested(rng: random.Random, kind: str) -> Any:
    if kind.startswith("list<"):
        size = rng.choice((0, 1, 2, 3))
        inner = kind[5:-1]
        return [None if rng.random() < 0.2 else draw_value(rng, inner) for _ in range(size)]
    return {"a": rng.choice((None, rng.randint(-9, 9))), "b": rng.choice((None, rng.choice(_TEXTS)))}
