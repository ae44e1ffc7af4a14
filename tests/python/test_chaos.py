"""The short, fixed part of the chaos suite; `make chaos` runs as many others as wanted. See tests/chaos."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from chaos import runner as chaos
from chaos import scenario

SCENARIOS = [
    pytest.param(
        each, id=each.name.removeprefix("fixed-"), marks=[pytest.mark.torch] if each.trainer == "torch" else []
    )
    for each in scenario.fixed()
]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> chaos.Runner:
    """One for all: undisturbed runs are shared."""
    return chaos.Runner(tmp_path_factory.mktemp("chaos"))


@pytest.mark.parametrize("each", SCENARIOS)
def test_scenario(runner: chaos.Runner, each: scenario.Scenario) -> None:
    try:
        done = runner.run(each)
    except chaos.Skipped as why:
        pytest.skip(str(why))
    assert not done.broken, f"{each.describe()}: {done.broken}"
    assert done.met == len(each.faults), f"only {done.met} faults came about: {each.describe()}"
