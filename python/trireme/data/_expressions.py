"""Expressions on columns: pyarrow's, or text such as "x > 3 and y == 'a'", which is parsed and never evaluated."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ZEROS = pa.array([0.0, -0.0])
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": pc.abs,
    "is_null": lambda value: value.is_null(),
    "is_valid": lambda value: value.is_valid(),
    "is_nan": lambda value: value.is_nan(),
    "length": pc.utf8_length,
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
}


def col(name: str) -> pc.Expression:
    """A column, by its name."""
    return pc.field(name)


def lit(value: Any) -> pc.Expression:
    """A value that is the same in every row."""
    return pc.scalar(value)


def expression(value: Any, asked_by: str) -> pc.Expression:
    """Accepts a pyarrow expression, or text."""
    if isinstance(value, pc.Expression):
        return value
    if isinstance(value, str):
        return parse(value)
    raise TypeError(
        f"{asked_by}: expected an expression such as col('x') > 3, or text such as \"x > 3 and y == 'a'\"; "
        f"got {type(value).__name__}"
    )


def conditions(value: Any, asked_by: str) -> list[pc.Expression]:
    """Expressions that select the same rows if they are applied one after another: the parts of a text joined by `and`,
    also in the form not (a or b). A source may be able to apply only some of them.
    """
    if not isinstance(value, str):
        return [expression(value, asked_by)]
    parser = _Parser(value)
    return [_lifted(parser.value(node)) for node in _joined_by_and(_tree(value))]


def parse(text: str) -> pc.Expression:
    """Supports comparisons, and/or/not, in, is None, arithmetic and a few functions of columns, in Python's syntax."""
    return _lifted(_Parser(text).value(_tree(text)))


def _tree(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(
            f"{text!r} is not an expression: {error.msg}. Write it as in Python: \"x > 3 and y == 'a'\""
        ) from None


def _joined_by_and(node: ast.expr, negated: bool = False) -> list[ast.expr]:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _joined_by_and(operand, not negated)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.Or if negated else ast.And):
            return [part for value in values for part in _joined_by_and(value, negated)]
    return [ast.copy_location(ast.UnaryOp(ast.Not(), node), node) if negated else node]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr) -> Any:
        """An expression, or a plain value if no column is in it."""
        match node:
            case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str, bytes)):
                return value
            case ast.Name(id=name):
                return pc.field(name)
            case ast.BoolOp(op=op, values=values):
                return self._joined(isinstance(op, ast.And), values)
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return ~_lifted(self.value(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.value(operand)
                return pc.negate(value) if isinstance(value, pc.Expression) else -value
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compared(left, ops, comparators)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self.value(left), self.value(right), node)
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return [self.value(element) for element in elements]
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
                return self._called(name, argument, node)
        raise self._refused(node)

    def _joined(self, is_and: bool, nodes: list[ast.expr]) -> pc.Expression:
        values = [_lifted(self.value(node)) for node in nodes]
        result = values[0]
        for value in values[1:]:
            result = result & value if is_and else result | value
        return result

    def _compared(self, left: ast.expr, ops: list[ast.cmpop], comparators: list[ast.expr]) -> pc.Expression:
        result = None
        value = self.value(left)
        for op, node in zip(ops, comparators, strict=True):
            other = self.value(node)
            one = self._comparison(value, op, other, node)
            result = one if result is None else result & one
            value = other
        return result

    def _comparison(self, left: Any, op: ast.cmpop, right: Any, node: ast.expr) -> pc.Expression:
        if isinstance(op, (ast.Is, ast.IsNot)) or (right is None and isinstance(op, (ast.Eq, ast.NotEq))):
            if right is not None:
                raise self._refused(node, "`is` works only with None: use == to compare")
            return _lifted(left).is_null() if isinstance(op, (ast.Is, ast.Eq)) else _lifted(left).is_valid()
        if isinstance(op, (ast.In, ast.NotIn)):
            if not isinstance(right, list) or any(isinstance(item, pc.Expression) for item in right):
                raise self._refused(node, "`in` needs a list of values: x in [1, 2]")
            found = _lifted(left).isin(right)
            if any(item == 0 and not isinstance(item, (bool, str, bytes)) for item in right):
                # Arrow's hash tables distinguish -0.0 from 0.0. `== 0` would refuse large numbers of uint64 columns.
                found = found | _lifted(left).isin(_ZEROS)
            return found if isinstance(op, ast.In) else ~found
        return _COMPARE[type(op)](_lifted(left), right)

    def _arithmetic(self, op: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        if isinstance(op, ast.BitAnd):
            return _lifted(left) & _lifted(right)
        if isinstance(op, ast.BitOr):
            return _lifted(left) | _lifted(right)
        left, right = _lifted(left), _lifted(right)
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():  # as in Python, also for integers
                return left.cast(pa.float64()) / right
            case ast.FloorDiv():
                return pc.floor(left.cast(pa.float64()) / right)
            case ast.Mod():
                return left - pc.floor(left.cast(pa.float64()) / right) * right
            case ast.Pow():
                return pc.power(left, right)
        raise self._refused(node)

    def _called(self, name: str, argument: ast.expr, node: ast.expr) -> pc.Expression:
        if name == "col" and isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return pc.field(argument.value)
        if name not in _FUNCTIONS:
            raise self._refused(node, f"the functions are {', '.join(['col', *_FUNCTIONS])}")
        return _FUNCTIONS[name](_lifted(self.value(argument)))

    def _refused(self, node: ast.expr, why: str = "") -> ValueError:
        part = ast.get_source_segment(self._text.strip(), node) or self._text
        hint = why or "use comparisons, and/or/not, in, is None and arithmetic on columns, or pass a function"
        return ValueError(f"{part!r} in the expression {self._text!r} is not supported: {hint}")


def _lifted(value: Any) -> pc.Expression:
    return value if isinstance(value, pc.Expression) else pc.scalar(value)
