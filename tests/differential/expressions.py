"""Expressions of plans: nested lists, and their text, which both languages parse.

["col", name], ["lit", value], [operator, operand, ...]
"""

from __future__ import annotations

from typing import Any

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
ARITHMETIC = ("+", "-", "*", "/", "//", "%")
FUNCTIONS = ("abs", "is_nan", "length", "lower", "upper", "is_null", "is_valid")

Expression = list[Any]


def text(expression: Expression) -> str:
    operator, *operands = expression
    match operator:
        case "col":
            return str(operands[0]) if operands[0].isidentifier() else f"col({operands[0]!r})"
        case "lit":
            return repr(operands[0])
        case "in" | "not in":
            return f"({text(operands[0])} {operator} {operands[1]!r})"
        case "is None" | "is not None":
            return f"({text(operands[0])} {operator})"
        case "not":
            return f"(not {text(operands[0])})"
        case "negate":
            return f"(-{text(operands[0])})"
    if operator in FUNCTIONS:
        return f"{operator}({text(operands[0])})"
    return f"({text(operands[0])} {operator} {text(operands[1])})"


def columns(expression: Expression) -> set[str]:
    operator, *operands = expression
    if operator == "col":
        return {operands[0]}
    return {name for operand in operands if isinstance(operand, list) and operand for name in _columns(operand)}


def _columns(operand: list[Any]) -> set[str]:
    known = isinstance(operand[0], str) and operand[0] in _OPERATORS
    return columns(operand) if known else set()


_OPERATORS = {"col", "lit", "in", "not in", "is None", "is not None", "not", "negate", "and", "or"}
_OPERATORS |= {*COMPARISONS, *ARITHMETIC, *FUNCTIONS}
