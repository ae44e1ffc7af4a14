"""The tools that run the stages of `make test`."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

import processes
from cpp_programs import ROOT

OVERLAP, STAGE = ROOT / "tools/overlap.sh", ROOT / "tools/stage.sh"


@pytest.fixture
def stage(tmp_path: Path) -> str:
    return f"{STAGE} {tmp_path / 'stages.tsv'}"


def start(tmp_path: Path, first: str, second: str) -> subprocess.Popen[str]:
    command = [str(OVERLAP), str(tmp_path / "second.log"), first, second]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(tmp_path: Path, first: str, second: str) -> tuple[int, str]:
    process = start(tmp_path, first, second)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


@pytest.mark.parametrize("ends_first", ["first", "second"])
def test_both_run_at_the_same_time_and_the_output_of_the_second_follows(
    tmp_path: Path, stage: str, ends_first: str
) -> None:
    meet = f"touch {tmp_path}/%s; until [ -e {tmp_path}/%s ]; do sleep 0.02; done"
    parts = {
        "first": f"{stage} one bash -c '{meet % ('a', 'b')}; echo in one'",
        "second": f"{stage} two bash -c '{meet % ('b', 'a')}; echo in two'",
    }
    other = "second" if ends_first == "first" else "first"
    parts[other] += f"; until grep -q {'one' if ends_first == 'first' else 'two'} {tmp_path}/stages.tsv; do :; done"
    code, output = run(tmp_path, parts["first"], parts["second"])
    assert code == 0
    assert re.findall(r"^(== one|in one|== two|in two)$", output, re.M) in (
        ["== one", "in one", "== two", "in two"],
        ["== one", "== two", "in two", "in one"],
    )
    table = subprocess.run(
        [str(STAGE), str(tmp_path / "stages.tsv")], capture_output=True, text=True, check=True
    ).stdout
    rows = re.findall(r"^\w+", table, re.M)  # in the order in which the stages began
    assert (rows[0], sorted(rows[1:3]), rows[3:]) == ("stage", ["one", "two"], ["total"])


@pytest.mark.parametrize("failing", ["one", "two"])
def test_a_failed_stage_is_named_and_stops_the_others(tmp_path: Path, stage: str, failing: str) -> None:
    commands = {name: f"{stage} {name} bash -c 'echo in {name}; sleep 1000'" for name in ("one", "two")}
    commands[failing] = f"{stage} {failing} bash -c 'echo broken; exit 7'"
    code, output = run(tmp_path, commands["one"], commands["two"])
    assert code == 7
    assert "broken\n" in output
    assert re.findall(r"FAILED: (\w+)", output) == [failing]
    assert processes.wait_until(lambda: not any("sleep 1000" in process.command for process in processes.marked()))


def test_ctrl_c_stops_both(tmp_path: Path, stage: str) -> None:
    process = start(tmp_path, f"{stage} one sleep 1000", f"{stage} two sleep 1000")

    def sleeping() -> int:
        return sum(each.command == "sleep 1000" for each in processes.marked())

    assert processes.wait_until(lambda: sleeping() == 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert processes.wait_until(lambda: sleeping() == 0)
