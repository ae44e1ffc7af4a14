"""Random plans return what plain Python computes, in both languages. `make differential` runs more of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

pytest.importorskip("pyarrow")
pytest.importorskip("trireme.data")

from differential import cases, files, oracle, plans, rules, run_python
from differential.check import Checker
from differential.compare import equal
from differential.run_cpp import PROGRAM, Program

needs_program = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")


def disagreements(folder: Path, languages: tuple[str, ...], drawn: dict[Any, dict[str, Any]]) -> dict[Any, str]:
    with Checker(folder, languages) as checker:
        found = {name: checker.problem(plan) for name, plan in drawn.items()}
        assert set(checker.compared) == set(languages)
    return {name: problem for name, problem in found.items() if problem is not None}


@pytest.mark.parametrize("seed", [101, 102])
def test_random_plans_in_python(tmp_path: Path, seed: int) -> None:
    drawn = {number: plans.draw(seed, number) for number in range(150)}
    assert not disagreements(tmp_path, ("python",), drawn)


@needs_program
def test_random_plans_in_both_languages(tmp_path: Path) -> None:
    drawn = {number: plans.draw(103, number) for number in range(150)}
    assert not disagreements(tmp_path, ("python", "cpp"), drawn)


def test_plans_that_once_disagreed(tmp_path: Path) -> None:
    languages = ("python", "cpp") if PROGRAM.exists() else ("python",)
    assert not disagreements(tmp_path, languages, cases.CASES)


def test_a_seed_reproduces_its_plan() -> None:
    assert plans.draw(7, 3) == plans.draw(7, 3) != plans.draw(7, 4)


def test_the_examples_are_of_documented_rules() -> None:
    assert {operation for operation, _, _ in rules.EXAMPLES} <= set(rules.documented())


@pytest.mark.parametrize("language", ["python", pytest.param("cpp", marks=needs_program)])
@pytest.mark.parametrize("number", range(len(rules.EXAMPLES)))
def test_the_examples_of_documented_rules(tmp_path: Path, number: int, language: str) -> None:
    """In the oracle and in both languages."""
    operation, plan, required = rules.EXAMPLES[number]
    expected = oracle.run(plan)
    placed = files.write(plan, tmp_path)
    if language == "python":
        outcome = run_python.run(placed)
    else:
        with Program() as program:
            outcome = program.run(placed)
    if expected.frame is None:
        assert equal(required, expected.value), operation
        assert equal(required, outcome["value"]), operation
        return
    assert equal(required, [next(iter(row.values())) for row in expected.frame.rows]), operation
    assert equal(required, [row[0] for row in outcome["table"]["rows"]]), operation
