"""C++ programs: the examples, and properties of every program. No Python process is involved."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from cpp_programs import BUILD

EXAMPLES = BUILD / "examples/cpp"
PROGRAM = BUILD / "tests/api_program"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")


def environment() -> dict[str, str]:
    """An environment without Python: PATH is empty."""
    return {**os.environ, "PATH": "", "PYTHONHOME": "/nowhere"}


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], env=environment(), capture_output=True, text=True, timeout=300, check=False
    )


def checked(program: Path, *arguments: str) -> str:
    done = run(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen(
                [PROGRAM, *arguments],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                **options,
            )
        )
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.kill()
            process.wait()


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def shape(folder: Path) -> dict[str, Any]:
    """The files and the fields of every event, without values that differ from run to run."""
    files = {re.sub(r"\d+", "N", str(path.relative_to(folder))) for path in folder.rglob("*") if path.is_file()}
    kinds: dict[str, set[str]] = {}
    for event in events_of(folder):
        kinds.setdefault(event["event"], set()).update(event)
    return {"files": files, "run.json": list(json.loads((folder / "run.json").read_text())), "events": kinds}


def test_quickstart(results: Path) -> None:
    out = checked(EXAMPLES / "example_quickstart")
    assert "trireme run quickstart: 4 workers" in out
    assert "outcome   finished" in out
    # 20 steps from x = 0 with a factor of 0.8 each.
    x = 3 - 3 * 0.8**20
    assert f"x = {x:.6g}, loss {(x - 3) ** 2:.6g}" in out
    result = trireme.Result.from_path(results / "quickstart")
    assert result.metrics == {"step": 19, "loss": pytest.approx((x - 3) ** 2)}


def test_run_folder_and_event_log_are_those_of_python(results: Path) -> None:
    checked(EXAMPLES / "example_resume")

    def train() -> None:
        checkpoint = None
        if trireme.get_context().get_world_rank() == 0:
            (results / "mine").mkdir(exist_ok=True)
            (results / "mine/model.txt").write_text("1")
            checkpoint = trireme.Checkpoint.from_directory(results / "mine")
        trireme.report({"epoch": 0}, checkpoint=checkpoint)

    trireme.DataParallelTrainer(
        train,
        scaling_config=trireme.ScalingConfig(num_workers=3),
        run_config=trireme.RunConfig(name="python", failure_config=trireme.FailureConfig(max_failures=1)),
    ).fit()
    in_cpp, in_python = shape(results / "resume"), shape(results / "python")
    for told in (in_cpp, in_python):
        told["events"].pop("warning", None)  # this machine may be too small for three workers
    in_python["files"].remove("trainer.pkl")  # a C++ program is its own trainer
    assert in_cpp == in_python


def test_no_python_process(started: Any, results: Path) -> None:
    process = started("wait")
    wait_until_inside(process, results)
    below = [p for p in processes.left_over() if p.pid != process.pid and not processes.is_guard(p)]
    assert len(below) == 2, "only two workers and a shell that waits for the driver's exit"
    for each in [process.pid, *(p.pid for p in below)]:
        assert os.readlink(f"/proc/{each}/exe") == str(PROGRAM.resolve())
        assert "python" not in Path(f"/proc/{each}/maps").read_text(), "libpython or our extension"


def test_lambdas(results: Path) -> None:
    out = checked(EXAMPLES / "example_lambda")
    assert "mean 4, distance 6" in out
    assert trireme.Result.from_path(results / "lambda_second").metrics == {"distance": 6.0, "rank": 0}


def test_a_source_and_a_sink(results: Path, tmp_path: Path) -> None:
    file = tmp_path / "high.txt"
    said = checked(EXAMPLES / "example_data_sink", str(file)).splitlines()
    assert said[-2:] == ["rank 0 took 400 of 800 rows", f"120 rows in {file}"]
    expected = [(sensor, math.sin(i + sensor)) for sensor in range(8) for i in range(100)]
    high = [(sensor, value) for sensor, value in expected if value > 0.9]
    found = [line.split() for line in file.read_text().splitlines()]
    assert [int(sensor) for sensor, _ in found] == [sensor for sensor, _ in high]
    assert [float(value) for _, value in found] == pytest.approx([value for _, value in high], rel=1e-5)
    assert not list(tmp_path.glob("*.part"))


def test_resume_after_a_worker_was_killed(results: Path) -> None:
    out = checked(EXAMPLES / "example_resume", "--break")
    assert "rank 1" in out
    assert "SIGKILL" in out
    assert "1 of 1 failure used" in out
    assert "after 2 attempts, the last one from epoch 2" in out
    result = trireme.Result.from_path(results / "resume")
    assert result.metrics is not None
    assert result.metrics["epoch"] == 4
    assert result.metrics["accuracy"] > 0.85
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "model.txt").read_text().startswith("4 ")


def test_survivors_keep_what_they_have_in_memory(results: Path) -> None:
    out = checked(EXAMPLES / "example_survive")
    assert "x = 3 after 3 attempts" in out
    loads = [path for path in (results / "survive/logs").rglob("rank_*.log") if "loads its data" in path.read_text()]
    assert sorted(str(path.relative_to(results / "survive/logs")) for path in loads) == [
        "attempt_0/rank_0.log",
        "attempt_0/rank_1.log",
        "attempt_0/rank_2.log",
        "attempt_1/rank_1.log",
        "attempt_2/rank_2.log",
    ]


def test_the_same_name_continues_the_run(results: Path) -> None:
    checked(EXAMPLES / "example_resume")
    out = checked(EXAMPLES / "example_resume")
    assert "resume (continued from checkpoint_000004)" in out
    assert "the last one from epoch 5" in out
    assert [event["resumed"] for event in events_of(results / "resume") if event["event"] == "run_started"] == [
        False,
        True,
    ]


def test_everything_crosses_the_border(results: Path) -> None:
    assert "RIGHT" in checked(PROGRAM, "everything")
    assert "a secret" not in (results / "everything/run.json").read_text()
    assert "GIVEN_TO_WORKERS" in (results / "everything/run.json").read_text()


def test_exception(results: Path) -> None:
    done = run(PROGRAM, "exception")
    assert done.returncode == 3, done.stderr
    failure = next(event for event in events_of(results / "exception") if event["event"] == "worker_failed")
    assert (failure["rank"], failure["cause"]) == (1, "exception")
    assert (failure["error_type"], failure["message"]) == ("std::out_of_range", "no such batch")
    text = done.stdout
    assert f"FAILED training failed: rank 1 (pid {failure['pid']}, host " in text
    assert "std::out_of_range: no such batch" in text
    assert "last lines of its log:\n  last words\n" in text
    assert f"FAILURE rank 1 pid {failure['pid']} cause exception type std::out_of_range" in text
    assert "no such batch" in (results / "exception/logs/attempt_0/rank_1.log").read_text()


def test_what_is_thrown_need_not_be_an_exception() -> None:
    done = run(PROGRAM, "number")
    assert done.returncode == 3, done.stderr
    assert "an exception that is not a std::exception" in done.stdout


def test_killed_worker() -> None:
    done = run(PROGRAM, "killed")
    assert done.returncode == 3, done.stderr
    assert "SIGKILL" in done.stdout
    assert re.search(r"FAILURE rank 1 pid \d+ cause signal type WorkerKilled", done.stdout)


def test_fit_inside_of_a_training_function() -> None:
    done = run(PROGRAM, "inside")
    assert done.returncode == 3, done.stderr
    assert "std::logic_error: fit() was called while another fit() runs in this process" in done.stdout


def test_local_mode(results: Path) -> None:
    assert "RIGHT" in checked(PROGRAM, "local")
    assert not results.exists()


def test_lambda_after_fits_that_ended_in_every_way() -> None:
    assert "WAY refused std::out_of_range 21\n" in checked(PROGRAM, "replay")


def test_a_program_that_never_calls_fit_is_an_error() -> None:
    done = run(PROGRAM, "wayward")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "exit code 0" in done.stdout
    assert "must take the same path in every process" in done.stdout


def test_bad_configuration_is_refused_before_anything_starts(results: Path) -> None:
    out = checked(PROGRAM, "refused")
    refused = dict(line.split(": ", 1) for line in out.splitlines() if line.startswith("REFUSED"))
    assert refused["REFUSED num_workers"].startswith("ScalingConfig.num_workers = -1")
    for word in ("use_gpu", "name", "licence", "py_modules", "working_dir"):
        assert word in refused[f"REFUSED {word}"]
    assert not list(results.glob("*/logs/*")), "a worker was started"


def wait_until_inside(process: subprocess.Popen[str], results: Path) -> None:
    inside = results / "waiting"
    assert processes.wait_until(lambda: len(list(inside.glob("inside_*"))) == 2 or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()


def test_ctrl_c_stops_cleanly(started: Any, results: Path) -> None:
    process = started("wait", start_new_session=True)
    wait_until_inside(process, results)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, out + err
    assert "FAILED training stopped: " in out
    assert "continues it" in out
    assert (events_of(results / "waiting")[-1]["event"], events_of(results / "waiting")[-1]["outcome"]) == (
        "run_finished",
        "stopped",
    )


@pytest.mark.parametrize(
    ("number", "first"), [(signal.SIGINT, "stop_requested"), (signal.SIGTERM, "preemption_announced")]
)
def test_the_second_signal_does_not_wait_for_the_grace(
    started: Any, results: Path, number: signal.Signals, first: str
) -> None:
    process = started("stubborn")
    wait_until_inside(process, results)
    process.send_signal(number)
    events = results / "waiting/events.jsonl"
    assert processes.wait_until(lambda: first in events.read_text())
    assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=15)  # less than preemption_grace_s and much less than stop_grace_s
    assert process.returncode == 3


def test_sigkill_of_the_driver_leaves_no_worker(started: Any, results: Path) -> None:
    process = started("wait")
    wait_until_inside(process, results)
    process.kill()
    process.communicate(timeout=120)
    assert processes.wait_until(lambda: not processes.left_over()), processes.left_over()
