"""Draws expressions that the types of the columns allow."""

from __future__ import annotations

import random
from typing import Any

from differential.expressions import COMPARISONS, Expression
from differential.oracle_expressions import NUMBERS, TEXTS
from differential.tables import DECIMALS, FLOATS, STRINGS, TIMES

_CONSTANTS = (0, 1, -1, 3, 7, 100, 300, 0.5, -2.25, 0.0, 3.0, 0.1)


def draw_condition(rng: random.Random, kinds: dict[str, str], loose: set[str], depth: int = 2) -> Expression | None:
    if depth and rng.random() < 0.4:
        parts = [draw_condition(rng, kinds, loose, depth - 1) for _ in range(2)]
        if parts[0] is None or parts[1] is None:
            return None
        op = rng.choice(("and", "or", "not"))
        return ["not", parts[0]] if op == "not" else [op, *parts]
    names = [name for name in kinds if name not in loose]
    if not names:
        return None
    name = rng.choice(names)
    if rng.random() < 0.15:
        return [rng.choice(("is None", "is not None")), ["col", name]]
    return _comparison(rng, name, kinds, names)


def _comparison(rng: random.Random, name: str, kinds: dict[str, str], names: list[str]) -> Expression | None:
    kind, column = kinds[name], ["col", name]
    op = rng.choice(COMPARISONS)
    same = [each for each in names if kinds[each] == kind]
    if kind in NUMBERS:
        return _number_comparison(rng, column, kind, [each for each in names if kinds[each] in NUMBERS])
    if kind in TEXTS:
        if rng.random() < 0.3:
            return [rng.choice(("in", "not in")), column, rng.sample(("a", "b", "", "zz", "é"), 2)]
        return [op, column, ["lit", rng.choice(("a", "b", "", "ab", "é"))]]
    if kind == "bool":
        return column if rng.random() < 0.5 else [rng.choice(("==", "!=")), column, ["lit", rng.random() < 0.5]]
    if kind in (*TIMES, *DECIMALS):
        return [op, column, ["col", rng.choice(same)]]
    return [rng.choice(("is None", "is not None")), column]


def _number_comparison(rng: random.Random, column: Expression, kind: str, others: list[str]) -> Expression:
    if kind in FLOATS and rng.random() < 0.15:
        return ["is_nan", column]
    if rng.random() < 0.25:
        constants = (0.0, 3.0, 0.5, -2.25) if kind in FLOATS else (0, 1, 3, 7, -1, 300, 2**40)
        return [rng.choice(("in", "not in")), column, rng.sample(constants, 2)]
    right = ["col", rng.choice(others)] if rng.random() < 0.3 else ["lit", rng.choice(_CONSTANTS)]
    left = _arithmetic(rng, column) if rng.random() < 0.2 else column
    return [rng.choice(COMPARISONS), left, right]


def _arithmetic(rng: random.Random, column: Expression) -> Expression:
    return [rng.choice(("+", "-", "*", "/")), column, ["lit", rng.choice(_CONSTANTS)]]


def draw_value_expression(rng: random.Random, kinds: dict[str, str], loose: set[str]) -> Expression | None:
    numbers = [name for name, kind in kinds.items() if kind in NUMBERS and name not in loose]
    texts = [name for name, kind in kinds.items() if kind in STRINGS and name not in loose]
    if texts and rng.random() < 0.3:
        return [rng.choice(("length", "lower", "upper")), ["col", rng.choice(texts)]]
    if not numbers or rng.random() < 0.15:
        return draw_condition(rng, kinds, loose, 1)
    column: Any = ["col", rng.choice(numbers)]
    if rng.random() < 0.2:
        op = rng.choice(("abs", "negate"))
        return [op if kinds[column[1]][0] != "u" else "abs", column]
    other = ["col", rng.choice(numbers)] if rng.random() < 0.4 else ["lit", rng.choice(_CONSTANTS)]
    return [rng.choice(("+", "-", "*", "/", "//", "%")), column, other]
