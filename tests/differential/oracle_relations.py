"""Sort, groups, joins and aggregates of the oracle: lists and dicts of Python, with the rules of docs/data.md."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from differential.oracle_expressions import NUMBERS, Overflows, Unsupported
from differential.tables import DECIMALS, FLOATS, INTEGERS, NESTED

if TYPE_CHECKING:
    from differential.oracle import Frame


class Set(list[Any]):
    """Values whose order is not defined."""


def identity(value: Any) -> Hashable:
    """What makes two keys equal: NaN equals NaN, and 0.0 equals -0.0."""
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else (value + 0.0,)
    if isinstance(value, list):
        return ("list", *(identity(each) for each in value))
    if isinstance(value, dict):
        return ("dict", *((key, identity(each)) for key, each in value.items()))
    return (type(value).__name__, value)


def rank(value: Any, descending: bool) -> tuple[int, Any]:
    """The order of a sort: values, then NaN, then nulls, in both directions."""
    if value is None:
        return (2, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, _Descending(value) if descending else value)


class _Descending:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(other._value < self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self._value == other._value)


def sort(frame: Frame, keys: list[str], descending: bool) -> Frame:
    _check_keys(frame, keys)
    rows = sorted(frame.rows, key=lambda row: tuple(rank(row[key], descending) for key in keys))
    return replace(frame, rows=rows)  # with equal keys in an undefined order, if the rows had one


def check_not_rounded(frame: Frame, names: list[str]) -> None:
    for name in names:
        if name in frame.rounded:
            raise Unsupported("equal values of a column that may be rounded in other ways")


def _check_keys(frame: Frame, keys: list[str]) -> None:
    check_not_rounded(frame, keys)
    for key in keys:
        if frame.kinds[key] in (*NESTED, "null") or frame.kinds[key].startswith(("list", "struct")):
            raise Unsupported(f"a key of type {frame.kinds[key]}")


def groupby(frame: Frame, keys: list[str], aggregates: list[list[Any]]) -> Frame:
    _check_keys(frame, keys)
    groups: dict[Hashable, list[dict[str, Any]]] = {} if keys else {(): []}
    for row in frame.rows:
        groups.setdefault(tuple(identity(row[key]) for key in keys), []).append(row)
    kinds = {key: key_kind(frame.kinds[key]) for key in keys}
    for function, column in aggregates:
        kind = "int64" if column is None else aggregate_kind(function, frame.kinds[column])
        name = f"{function}({column or ''})"
        if name in kinds:
            raise Unsupported("two columns of one name")
        kinds[name] = kind
    made = []
    for rows in groups.values():
        row = {key: rows[0][key] for key in keys}
        for function, column in aggregates:
            name = f"{function}({column or ''})"
            values = [] if column is None else [each[column] for each in rows]
            row[name] = len(rows) if column is None else aggregate(function, values, frame.kinds[column])
        made.append(row)
    made.sort(key=lambda row: tuple(rank(row[key], False) for key in keys))
    loose = (frame.loose & set(keys)) if keys else set(kinds)
    rounded = {
        f"{function}({column})"
        for function, column in aggregates
        if column in frame.rounded or (function in ("sum", "mean", "std") and kinds[f"{function}({column})"] in FLOATS)
    }
    return replace(frame, kinds=kinds, rows=made, ordered=True, loose=loose, rounded=rounded)


def key_kind(kind: str) -> str:
    """Groups and pairs have their keys as values."""
    return "string" if kind == "dictionary<string>" else kind


def aggregate_kind(function: str, kind: str) -> str:
    if function == "count":
        return "int64"
    if function in ("min", "max"):
        if kind in ("dictionary<string>", "null") or kind.startswith(("list", "struct")):
            raise Unsupported(f"{function} of {kind}")
        return kind
    if function in ("mean", "std"):
        if kind not in (*NUMBERS, *DECIMALS):
            raise Unsupported(f"{function} of {kind}")
        return "float64"
    if kind.startswith("decimal"):
        return f"decimal(38, {kind.split(', ')[1]}"
    if kind not in NUMBERS:
        raise Unsupported(f"sum of {kind}")
    return "float64" if kind in FLOATS else "uint64" if kind[0] == "u" else "int64"


def aggregate(function: str, values: list[Any], kind: str) -> Any:
    """Of the values that are not null; None if there is none."""
    aggregate_kind(function, kind)
    given = [value for value in values if value is not None]
    if function == "count":
        return len(given)
    if not given:
        return None
    if function in ("min", "max"):
        numbers = [value for value in given if not (isinstance(value, float) and math.isnan(value))]
        return (min if function == "min" else max)(numbers) if numbers else math.nan
    if function == "sum":
        return _sum(given, kind)
    if function == "mean":
        return _mean(given)
    return deviation(given)


def _sum(values: list[Any], kind: str) -> Any:
    if kind in FLOATS:
        return _float_sum(values)
    total = sum(values) if kind in INTEGERS else sum(values, Decimal(0))
    if kind in INTEGERS and not (0 <= total < 2**64 if kind[0] == "u" else -(2**63) <= total < 2**63):
        raise Overflows(f"sum of {kind}")
    return total


def _float_sum(values: list[float]) -> float:
    if any(math.isnan(value) for value in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    return next((value for value in values if math.isinf(value)), math.fsum(values) if values else 0.0)


def _mean(values: list[Any]) -> float:
    if isinstance(values[0], float):
        return _float_sum(values) / len(values)
    return float(sum(map(Fraction, values)) / len(values))  # exact: the sum may exceed the type


def deviation(values: list[Any], ddof: int = 1) -> float | None:
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return math.nan if len(values) > ddof else None
    if len(values) <= ddof:
        return None
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    return math.sqrt(sum((value - mean) ** 2 for value in exact) / (len(exact) - ddof))


def over_all(function: str, values: list[Any], kind: str, ignore_nulls: bool) -> Any:
    if not ignore_nulls and None in values:
        aggregate_kind(function, kind)
        return None
    made = aggregate(function, values, kind)
    # docs: NaN if there are no more than ddof values; a group's is null, as Arrow has it.
    return math.nan if function == "std" and made is None and any(v is not None for v in values) else made


def distinct(values: list[Any]) -> list[Any]:
    """In order of first appearance."""
    found: dict[Hashable, Any] = {}
    for value in values:
        found.setdefault(identity(value), value)
    return list(found.values())


_HOW = {
    "left_outer": "left",
    "right_outer": "right",
    "full_outer": "full",
    "outer": "full",
    "left_semi": "semi",
    "left_anti": "anti",
}


def join(frame: Frame, others: list[Frame], how: str, on: list[str], right_on: list[str], suffix: str) -> Frame:
    (other,) = others
    how = _HOW.get(how, how)
    _check_keys(frame, on)
    _check_keys(other, right_on)
    if [frame.kinds[key] for key in on] != [other.kinds[key] for key in right_on]:
        raise Unsupported("keys of different types")
    ordered = frame.ordered and other.ordered
    pairs = _pairs(frame.rows, other.rows, how, on, right_on)
    if how in ("semi", "anti"):
        return replace(frame, rows=[frame.rows[left] for left, _ in pairs], ordered=ordered)
    if how in ("right_semi", "right_anti"):
        return replace(other, rows=[other.rows[right] for _, right in pairs], ordered=ordered)
    rest = [name for name in frame.kinds if name not in on]
    names = {name: name + suffix if name in rest else name for name in other.kinds if name not in right_on}
    kinds = {key: key_kind(frame.kinds[key]) for key in on} | {name: frame.kinds[name] for name in rest}
    if len({*kinds, *names.values()}) < len(kinds) + len(names):
        raise Unsupported("two columns of one name")
    kinds |= {new: other.kinds[name] for name, new in names.items()}
    rows = []
    for left, right in pairs:
        mine = frame.rows[left] if left is not None else {}
        its = other.rows[right] if right is not None else {}
        row = {key: mine.get(key) if mine else its[other_key] for key, other_key in zip(on, right_on, strict=True)}
        row |= {name: mine.get(name) for name in rest}
        rows.append(row | {new: its.get(name) for name, new in names.items()})
    rounded = frame.rounded | {names[name] for name in other.rounded if name in names}
    loose = frame.loose | {names[name] for name in other.loose if name in names}
    loose |= {key for key, its in zip(on, right_on, strict=True) if its in other.loose}
    return replace(frame, kinds=kinds, rows=rows, ordered=ordered, loose=loose, rounded=rounded)


def _pairs(
    left: list[Any], right: list[Any], how: str, on: list[str], right_on: list[str]
) -> list[tuple[int | None, int | None]]:
    """Row numbers in the order of the left rows, then of the right ones. Nulls never match."""
    places: dict[Hashable, list[int]] = {}
    for index, row in enumerate(right):
        if all(row[key] is not None for key in right_on):
            places.setdefault(tuple(identity(row[key]) for key in right_on), []).append(index)
    matches = [(index, places.get(tuple(identity(row[key]) for key in on), [])) for index, row in enumerate(left)]
    matched = {right_index for _, found in matches for right_index in found}
    if how == "semi":
        return [(index, None) for index, found in matches if found]
    if how == "anti":
        return [(index, None) for index, found in matches if not found]
    if how in ("right_semi", "right_anti"):
        return [(None, index) for index in range(len(right)) if (index in matched) == (how == "right_semi")]
    pairs: list[tuple[int | None, int | None]] = []
    for index, found in matches:
        pairs += [(index, right_index) for right_index in found]
        if not found and how in ("left", "full"):
            pairs.append((index, None))
    if how in ("right", "full"):
        pairs += [(None, index) for index in range(len(right)) if index not in matched]
    return pairs


def union(frame: Frame, others: list[Frame]) -> Frame:
    rows, ordered, loose, rounded = list(frame.rows), frame.ordered, set(frame.loose), set(frame.rounded)
    for other in others:
        if other.kinds != frame.kinds:
            raise Unsupported("a union of different types")
        rows += other.rows
        ordered = ordered and other.ordered
        loose |= other.loose
        rounded |= other.rounded
    return replace(frame, rows=rows, ordered=ordered, loose=loose, rounded=rounded)


def zip_columns(frame: Frame, others: list[Frame]) -> Frame:
    (other,) = others
    if len(frame.rows) != len(other.rows) or not (frame.ordered and other.ordered):
        raise Unsupported("a zip of different rows")
    names: dict[str, str] = {}
    for name in other.kinds:
        new, number = name, 0
        while new in frame.kinds or new in names.values():
            number += 1
            new = f"{name}_{number}"
        names[name] = new
    kinds = frame.kinds | {names[name]: kind for name, kind in other.kinds.items()}
    rows = [
        mine | {names[name]: value for name, value in its.items()}
        for mine, its in zip(frame.rows, other.rows, strict=True)
    ]
    loose, rounded = ({names[name] for name in its} for its in (other.loose, other.rounded))
    return replace(frame, kinds=kinds, rows=rows, loose=frame.loose | loose, rounded=frame.rounded | rounded)
