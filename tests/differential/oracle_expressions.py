"""Evaluates expressions row by row in plain Python, with the rules of docs/data.md."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from differential.expressions import ARITHMETIC, COMPARISONS, Expression
from differential.tables import FLOATS, INTEGERS, STRINGS, limits

NUMBERS = (*INTEGERS, *FLOATS)
TEXTS = (*STRINGS, "dictionary<string>")


class Unsupported(Exception):
    """The plan is outside of what the oracle knows; the generator draws another step."""


class Overflows(Exception):
    """An error is the right outcome."""


class Lossy(Exception):
    """A comparison of an integer with a float that cannot hold it: an error, or the exact answer."""


def literal_kind(value: Any) -> str:
    """The smallest type that holds it, as Arrow takes constants."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return next(kind for kind in ("int8", "int16", "int32", "int64") if _fits(value, kind))
    if isinstance(value, float):
        return "float32" if float(np.float32(value)) == value else "float64"
    return "string"


def common(first: str, second: str) -> str:
    """The type in which two numbers meet."""
    kinds = {first, second}
    if kinds & {"float64", "float32"}:
        return "float64" if "float64" in kinds else "float32"
    signed = max((int(kind[3:]) for kind in kinds if kind[0] == "i"), default=0)
    unsigned = max((int(kind[4:]) for kind in kinds if kind[0] == "u"), default=0)
    if signed == 0:
        return f"uint{unsigned}"
    return f"int{signed if signed > unsigned else min(64, unsigned * 2)}"


def kind_of(expression: Expression, kinds: dict[str, str]) -> str:
    op, *operands = expression
    if op == "col":
        return kinds[operands[0]]
    if op == "lit":
        return literal_kind(operands[0])
    if op in COMPARISONS or op in ("and", "or", "not", "in", "not in", "is None", "is not None"):
        return "bool"
    if op in ("is_null", "is_valid", "is_nan"):
        return "bool"
    first = kind_of(operands[0], kinds)
    if op in ("abs", "negate", "lower", "upper"):
        return first
    if op == "length":
        return "int64" if first == "large_string" else "int32"
    if op in ("/", "//", "%"):
        return "float64"
    return common(first, kind_of(operands[1], kinds))


def evaluate(expression: Expression, row: dict[str, Any], kinds: dict[str, str]) -> Any:
    op, *operands = expression
    if op == "col":
        return row[operands[0]]
    if op == "lit":
        return operands[0]
    if op in ("and", "or"):
        return _kleene(op, *(evaluate(operand, row, kinds) for operand in operands))
    first = evaluate(operands[0], row, kinds)
    if op in ("is None", "is_null"):
        return first is None
    if op in ("is not None", "is_valid"):
        return first is not None
    if op in ("in", "not in"):  # never null: a null is in no list of values
        if isinstance(first, int) and first >= 2**63 and min(operands[1]) < 0:
            raise Lossy(f"{first} as int64")
        found = first is not None and any(first == value for value in operands[1])
        return found == (op == "in")
    if op in _UNARY:
        return None if first is None else _UNARY[op](first, kind_of(operands[0], kinds))
    second = evaluate(operands[1], row, kinds)
    both = kind_of(operands[0], kinds), kind_of(operands[1], kinds)
    _check_casts(op, first, second, both)
    if first is None or second is None:
        return None
    return _COMPARE[op](first, second) if op in COMPARISONS else arithmetic(op, first, second, both)


def _check_casts(op: str, first: Any, second: Any, kinds: tuple[str, str]) -> None:
    """Columns are converted before they meet, also in rows where the other value is null."""
    if not all(kind in NUMBERS for kind in kinds):
        return
    met = "float64" if op in ("/", "//", "%") else common(*kinds)
    for value, kind in ((first, kinds[0]), (second, kinds[1])):
        if value is not None and kind in INTEGERS and not _exact(value, met):
            raise (Lossy if op in COMPARISONS else Overflows)(f"{value} as {met}")


def _kleene(op: str, first: Any, second: Any) -> Any:
    decisive = op == "or"
    if first is decisive or second is decisive:
        return decisive
    return None if first is None or second is None else not decisive


def _signed(change: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    def changed(value: Any, kind: str) -> Any:
        made = change(value)
        if kind in INTEGERS and not _fits(made, kind):
            raise Overflows(f"{made} in {kind}")
        return made

    return changed


_UNARY: dict[str, Callable[[Any, str], Any]] = {
    "not": lambda value, kind: not value,
    "negate": _signed(operator.neg),
    "abs": _signed(abs),
    "is_nan": lambda value, kind: math.isnan(value),
    "length": lambda value, kind: len(value),
    "lower": lambda value, kind: value.lower(),
    "upper": lambda value, kind: value.upper(),
}

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def arithmetic(op: str, first: Any, second: Any, kinds: tuple[str, str]) -> Any:
    assert op in ARITHMETIC
    if op in ("/", "//", "%"):
        return _divide(op, first, second)
    met = common(*kinds)
    change = {"+": operator.add, "-": operator.sub, "*": operator.mul}[op]
    if met in INTEGERS:
        made = change(first, second)
        if not _fits(made, met):
            raise Overflows(f"{first} {op} {second} in {met}")
        return made
    number = np.float64 if met == "float64" else np.float32
    with np.errstate(all="ignore"):
        return float(change(number(first), number(second)))


def _divide(op: str, first: Any, second: Any) -> float:
    if second == 0:
        raise Overflows("a division by zero")
    with np.errstate(all="ignore"):
        quotient = np.float64(first) / np.float64(second)
        if op == "/":
            return float(quotient)
        floor = np.floor(quotient)
        return float(floor) if op == "//" else float(np.float64(first) - floor * np.float64(second))


def _fits(value: int, kind: str) -> bool:
    low, high = limits(kind)
    return low <= value <= high


def _exact(value: int, kind: str) -> bool:
    """Whether Arrow converts the integer to this type: floats take integers that all floats around them can tell."""
    if kind in INTEGERS:
        return _fits(value, kind)
    return abs(value) <= (2**53 if kind == "float64" else 2**24)
