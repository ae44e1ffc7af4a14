"""The short, fixed part of the chaos suite; `make chaos` runs any number of further scenarios. See tests/chaos."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from chaos import check, process_table, scenario
from chaos import runner as chaos
from chaos.load import Load

TESTS = Path(__file__).resolve().parents[1]
ALL = scenario.fixed()
# Also under load, where timing decides what is lost.
LOADED = ["term-upload", "sharded-term", "slots", "data", "cpp-data"]


def named(chosen: list[scenario.Scenario]) -> list[Any]:
    marks = {"torch": [pytest.mark.torch]}
    return [pytest.param(each, id=short_name(each), marks=marks.get(each.trainer, [])) for each in chosen]


def short_name(each: scenario.Scenario) -> str:
    return each.name.removeprefix("fixed-")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> chaos.Runner:
    """One for all scenarios: undisturbed runs are shared."""
    return chaos.Runner(tmp_path_factory.mktemp("chaos"))


@pytest.fixture(scope="module")
def loaded_runner(tmp_path_factory: pytest.TempPathFactory) -> chaos.Runner:
    return chaos.Runner(tmp_path_factory.mktemp("chaos_loaded"), loaded=True)


def run(runner: chaos.Runner, each: scenario.Scenario) -> None:
    try:
        done = runner.run(each)
    except chaos.Skipped as why:
        pytest.skip(str(why))
    assert not done.broken, f"{each.describe()}: {done.broken}"
    assert done.met == len(each.faults), f"only {done.met} faults came about: {each.describe()}"


@pytest.mark.parametrize("each", named(ALL))
def test_scenario(runner: chaos.Runner, each: scenario.Scenario) -> None:
    run(runner, each)


@pytest.mark.parametrize("each", named([each for each in ALL if short_name(each) in LOADED]))
def test_scenario_under_load(loaded_runner: chaos.Runner, each: scenario.Scenario) -> None:
    with Load():
        run(loaded_runner, each)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_the_load_ends_with_the_suite(signal_number: int) -> None:
    program = (
        "import time; from chaos.load import Load\nwith Load() as load: print(*load.pids, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": str(TESTS)}) as suite:  # fmt: skip
        assert suite.stdout
        pids = [int(pid) for pid in suite.stdout.readline().split()]
        assert len(pids) == len(os.sched_getaffinity(0))
        suite.send_signal(signal_number)
    assert process_table.wait_until(lambda: not any(map(lives, pids)), 60)


def lives(pid: int) -> bool:
    return process_table.state(pid) not in ("", "Z")


def test_parallel_scenarios_are_independent(tmp_path: Path) -> None:
    """Each has its own folders and is checked for leftovers while the other one runs."""
    runner = chaos.Runner(tmp_path)
    chosen = [each for each in ALL if short_name(each) in ("exits", "fuzz", "data")]
    with ThreadPoolExecutor(len(chosen)) as pool:
        broken = {each.name: done.broken for each, done in zip(chosen, pool.map(runner.run, chosen), strict=True)}
    assert broken == dict.fromkeys(broken, "")


def test_seeds_of_reported_defects_still_name_the_same_scenarios() -> None:
    assert scenario.make(31337, 265).describe() == (
        "python data x2 folder,sync,only_rank_zero,keep 1,32 MB: "
        "term in step 2 of rank 1 (inside); stop in report 3 of rank 1 (inside)"
    )


def test_other_seeds_have_all_ingredients() -> None:
    made = [scenario.make(1, number) for number in range(300)]
    assert {each.checkpoint for each in made} == {"state", "folder", "sharded"}
    assert any(each.slots and each.num_to_keep == 1 for each in made)
    assert any(each.reporters > 1 for each in made)
    assert any(each.trainer == "data" and each.language == "cpp" for each in made)
    assert any(scenario.FREEZE in each.kinds() for each in made)
    assert any(fault.kind == "term" and fault.phase == "upload" for each in made for fault in each.faults)


def test_a_commit_that_a_killed_driver_has_not_logged_counts(tmp_path: Path) -> None:
    run = tmp_path / "chaos"
    run.mkdir()
    logged = [
        {"event": "run_started"},
        {"event": "checkpoint_committed", "name": "slot0", "index": 5},
        {"event": "checkpoint_committed", "name": "slot1", "index": 7},
        {"event": "run_started", "checkpoint": str(run / "slot0")},  # written again with report 9
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in logged))
    assert check.Outcome(scenario.Scenario("test"), run, tmp_path).committed() == ["slot1", "slot0"]
