"""The order of an epoch never changes: positions in checkpoints depend on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

pytest.importorskip("pyarrow")
pytest.importorskip("trireme.data")

from differential import files, recorded, run_python
from differential.run_cpp import PROGRAM, Program

RECORDED = json.loads(recorded.FILE.read_text())
PLANS = recorded.plans()


def test_every_plan_is_recorded() -> None:
    assert set(PLANS) == set(RECORDED)


def test_python_returns_the_recorded_rows_in_the_recorded_order(tmp_path: Path) -> None:
    wrong = {}
    for index, (name, plan) in enumerate(PLANS.items()):
        outcome = run_python.run(files.write(plan, tmp_path / str(index)))
        found = recorded.digest(outcome) if "table" in outcome else outcome
        if found != RECORDED[name]["python"]:
            wrong[name] = found
    assert not wrong


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")
def test_cpp_returns_the_recorded_rows_in_the_recorded_order(tmp_path: Path) -> None:
    wrong = {}
    with Program() as program:
        for index, (name, plan) in enumerate(PLANS.items()):
            if "cpp" not in RECORDED[name]:
                continue
            outcome = program.run(files.write(plan, tmp_path / str(index)))
            found = recorded.digest(outcome) if "table" in outcome else outcome
            if found != RECORDED[name]["cpp"]:
                wrong[name] = found
    assert not wrong
