"""The `trireme` command on run folders that are written here: its output, its errors, its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import trireme
from cpp_programs import BUILD
from runs import command
from trireme import _core

FAKE_DRIVER = BUILD / "tests/fake_driver"


class Machine:
    """A user's state and results folders, and the command to run in them."""

    def __init__(self, folder: Path) -> None:
        self.results = folder / "results"
        self.state = folder / "state"
        self.env = {**os.environ, "TRIREME_RESULTS": str(self.results), "TRIREME_STATE_DIR": str(self.state)}
        self.env.pop("TRIREME_PYTHON", None)

    def trireme(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command(), *args], env={**self.env, **more}, capture_output=True, text=True, timeout=60, check=False
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen([command(), *args], env=self.env, stdout=subprocess.PIPE, text=True)

    def add_run(self, name: str, events: list[dict[str, Any]], *, started: float = 100.0, active: bool = False) -> Path:
        path = self.results / name
        (path / "logs" / "attempt_0").mkdir(parents=True)
        run = {"format": 1, "name": name, "id": f"id-{name}", "trainer": "TorchTrainer", "created": started}
        (path / "run.json").write_text(json.dumps(run))
        (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        self.register(name, started=started, active=active)
        return path

    def register(self, name: str, *, started: float = 100.0, active: bool) -> None:
        entry: dict[str, Any] = {
            "id": f"id-{name}",
            "name": name,
            "path": str(self.results / name),
            "pid": os.getpid(),
            "pid_start": int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]),
            "started": started,
        }
        if active:
            entry |= {"address": "unix:@trireme-nobody-listens-here", "secret": "ab" * 32}
        file = self.state / "runs" / f"id-{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(entry))
        draft.rename(file)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def happy_events() -> list[dict[str, Any]]:
    return [
        {"time": 100.0, "event": "run_started", "name": "digits", "num_workers": 2, "host": "a", "path": "/r"},
        {"time": 100.1, "event": "attempt_started", "attempt": 0, "num_workers": 2},
        {"time": 100.5, "event": "training_started", "attempt": 0, "num_workers": 2, "seconds": 0.4},
        {"time": 101.0, "event": "report", "attempt": 0, "rank": 0, "index": 0, "metrics": {"loss": 0.25}},
        {"time": 101.0, "event": "report", "attempt": 0, "rank": 1, "index": 0, "metrics": {"loss": 9}},
        {
            "time": 102.0,
            "event": "run_finished",
            "outcome": "finished",
            "seconds": 2.0,
            "attempts": 1,
            "reports": 1,
        },
    ]


def failed_events() -> list[dict[str, Any]]:
    failure = {"event": "worker_failed", "attempt": 0, "host": "a", "cause": "exception", "time": 101.0}
    return [
        *happy_events()[:3],
        {
            **failure,
            "rank": 1,
            "pid": 4711,
            "error_type": "ValueError",
            "message": "boom",
            "traceback": "Traceback:\n  line 7\nValueError: boom",
            "log_tail": ["last words"],
        },
        {**failure, "rank": 0, "pid": 4710, "message": "peer is gone", "collateral": True},
        {**failure, "rank": 2, "pid": 4712, "message": "peer is gone", "collateral": True},
        {"time": 101.5, "event": "run_finished", "outcome": "failed", "seconds": 1.5, "error": "rank 1 failed"},
    ]


def test_version_and_help(machine: Machine) -> None:
    assert machine.trireme("--version").stdout.startswith("trireme 0.")
    text = machine.trireme("--help")
    assert text.returncode == 0
    assert "Exit codes" in text.stdout
    for name in ("run", "launch", "runs", "show", "logs", "stop", "stack", "preempt", "capacity", "manifest", "env"):
        assert name in text.stdout
        assert machine.trireme(name, "--help").returncode == 0


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("fly",),
        ("runs", "--bogus"),
        ("logs", "--rank", "x"),
        ("stop",),
        ("stack",),
        ("preempt",),
        ("preempt", "digits", "--rank", "-1"),
        ("preempt", "digits", "--deadline", "-3"),
        ("preempt", "digits", "--deadline", "nan"),
        ("preempt", "digits", "--deadline", "soon"),
        ("capacity", "--num-cpus", "-1"),
        ("capacity", "--num-cpus", "nan"),
        ("capacity", "--num-cpus", "inf"),
        ("capacity", "--num-cpus", "4x"),
        ("capacity", "--num-gpus", "0.5"),
        ("capacity", "--resource", "licence"),
        ("capacity", "--resource", "=2"),
        ("capacity", "--resource", "licence=-2"),
        ("capacity", "--resource", "CPU=2"),
    ],
)
def test_wrong_usage_ends_with_2(machine: Machine, args: tuple[str, ...]) -> None:
    assert machine.trireme(*args).returncode == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("shw",), "unknown command 'shw'; did you mean 'show'? (commands: run, launch, "),
        (("fly", "--json"), "unknown command 'fly' (commands: "),
        (("data", "check"), "unknown command 'data check' (commands: verify)"),
    ],
)
def test_an_unknown_command_is_named(machine: Machine, args: tuple[str, ...], said: str) -> None:
    done = machine.trireme(*args)
    assert done.returncode == 2
    assert said in done.stderr


def test_runs(machine: Machine) -> None:
    assert "no runs yet" in machine.trireme("runs").stdout
    machine.add_run("digits", happy_events(), started=100.0)
    machine.add_run("faces", failed_events(), started=200.0)
    machine.add_run("words", happy_events()[:4], started=300.0, active=True)
    machine.add_run("lost", happy_events()[:4], started=50.0)
    machine.add_run("gone", happy_events(), started=400.0)
    shutil.rmtree(machine.results / "gone")

    lines = [line.split() for line in machine.trireme("runs").stdout.splitlines()]
    assert lines[0][:4] == ["NAME", "STATE", "WORKERS", "REPORTS"]
    assert [line[:4] for line in lines[1:]] == [
        ["words", "running", "2", "1"],
        ["faces", "failed", "2", "0"],
        ["digits", "finished", "2", "1"],
        ["lost", "lost", "2", "1"],
    ]
    assert "gone" in machine.trireme("runs", "--all").stdout
    listed = json.loads(machine.trireme("runs", "--json").stdout)
    assert [run["name"] for run in listed] == ["words", "faces", "digits", "lost"]
    assert listed[1]["error"] == "rank 1 failed"


def test_show(machine: Machine) -> None:
    path = machine.add_run("digits", happy_events())
    for name in ("digits", str(path), "id-dig"):
        shown = machine.trireme("show", name)
        assert shown.returncode == 0, shown.stderr
        assert "loss  0.25" in shown.stdout
        assert "2 workers running after 0.40 s" in shown.stdout
        assert "run finished after 2.0 s, 1 report\n" in shown.stdout
    as_json = json.loads(machine.trireme("show", "digits", "--json").stdout)
    assert as_json["state"] == "finished"
    assert as_json["metrics"] == {"loss": 0.25}


def test_show_of_a_continued_run_times_each_start_by_itself(machine: Machine) -> None:
    later = [{**event, "time": event["time"] + 86400.0} for event in happy_events()]
    later[0] |= {"resumed": True, "checkpoint": "/r/checkpoint_000000"}
    path = machine.add_run("digits", [*happy_events(), *later])
    run = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(run | {"created": 86500.0}))  # as the last start wrote it
    shown = machine.trireme("show", "digits", TZ="UTC").stdout
    lines = shown[shown.index("events\n") :].splitlines()[1:]
    assert [line[:18].strip() for line in lines] == [
        "1970-01-01 00:01",
        "500 ms",
        "2.0 s",
        "1970-01-02 00:01",
        "500 ms",
        "2.0 s",
    ]


def test_show_cuts_a_thousand_metrics(machine: Machine) -> None:
    many = happy_events()
    many[3]["metrics"] = {f"metric_{number}": number for number in range(1000)}
    machine.add_run("digits", many)
    shown = machine.trireme("show", "digits").stdout
    assert "metric_19  19" in shown and "metric_20" not in shown
    assert "980 more metrics in `trireme show --json`" in shown
    assert len(json.loads(machine.trireme("show", "digits", "--json").stdout)["metrics"]) == 1000


def test_show_tells_failures_and_groups_what_follows(machine: Machine) -> None:
    machine.add_run("faces", failed_events())
    shown = machine.trireme("show").stdout  # the newest
    assert "attempt 0: rank 1 (pid 4711, host a) failed: ValueError: boom\n" in shown
    assert "    ValueError: boom" in shown
    assert "rank 0,2: attempt 0: peer is gone" in shown
    assert len(json.loads(machine.trireme("show", "--json").stdout)["failures"]) == 3


def test_show_skips_an_incomplete_line_and_warns(machine: Machine) -> None:
    path = machine.add_run("digits", happy_events()[:4])
    with (path / "events.jsonl").open("a") as log:
        log.write('{"time": 103, "ev')
    shown = machine.trireme("show", "digits")
    assert shown.returncode == 0
    assert "has an incomplete line" in shown.stdout
    assert "lost" in shown.stdout


def test_unknown_and_ambiguous_runs(machine: Machine) -> None:
    machine.add_run("digits", happy_events())
    machine.add_run("dogs", happy_events())
    unknown = machine.trireme("show", "digit")
    assert unknown.returncode == 1
    assert "did you mean 'digits'?" in unknown.stderr
    ambiguous = machine.trireme("show", "id-d")
    assert ambiguous.returncode == 1
    assert "id-digits" in ambiguous.stderr
    assert "id-dogs" in ambiguous.stderr
    foreign = machine.trireme("show", str(machine.state))
    assert foreign.returncode == 1


def test_logs(machine: Machine) -> None:
    path = machine.add_run("digits", happy_events())
    (path / "logs/attempt_0/rank_0.log").write_text("a\nb\nc\n")
    (path / "logs/attempt_0/rank_1.log").write_bytes(b"10%\r100%\n\xff no newline")
    assert machine.trireme("logs", "digits").stdout.splitlines() == [
        "[rank 0] a",
        "[rank 0] b",
        "[rank 0] c",
        "[rank 1] 100%",
        "[rank 1] \ufffd no newline",
    ]
    assert machine.trireme("logs", "digits", "--rank", "0", "-n", "2").stdout == "b\nc\n"
    # The run has ended, so there is nothing to wait for.
    assert machine.trireme("logs", "digits", "--rank", "0", "--follow").stdout == "a\nb\nc\n"

    (path / "logs/attempt_1").mkdir()
    (path / "logs/attempt_1/rank_0.log").write_text("second\n")
    assert machine.trireme("logs", "digits").stdout == "second\n"
    assert machine.trireme("logs", "digits", "--attempt", "0", "--rank", "0").stdout == "a\nb\nc\n"
    for wish, said in ((("--rank", "7"), "its ranks: 0"), (("--attempt", "5"), "attempts of this run: 0-1")):
        refused = machine.trireme("logs", "digits", *wish)
        assert refused.returncode == 1
        assert said in refused.stderr


def test_logs_follow_until_the_run_ends(machine: Machine) -> None:
    path = machine.add_run("digits", happy_events()[:4], active=True)
    log = path / "logs/attempt_0/rank_0.log"
    log.write_text("old\nfirst\n")
    follower = machine.start("logs", "digits", "--follow", "-n", "1")
    killer = threading.Timer(60, follower.kill)
    killer.start()
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "[rank 0] first\n"
        with log.open("a") as file:
            file.write("second\n")
        assert follower.stdout.readline() == "[rank 0] second\n"
        # The next attempt begins: its log files are found.
        (path / "logs/attempt_1").mkdir()
        (path / "logs/attempt_1/rank_0.log").write_text("again\n")
        assert follower.stdout.readline() == "[rank 0] again\n"
        with (path / "logs/attempt_1/rank_0.log").open("a") as file:
            file.write("last words")
        machine.register("digits", active=False)
        assert follower.stdout.read() == "[rank 0] last words\n"
        assert follower.wait() == 0
    finally:
        killer.cancel()
        follower.kill()
        follower.wait()


def test_stop_refuses_what_cannot_be_stopped(machine: Machine) -> None:
    machine.add_run("digits", happy_events())
    over = machine.trireme("stop", "digits")
    assert over.returncode == 1
    assert "is not running" in over.stderr
    machine.add_run("deaf", happy_events()[:4], active=True)
    deaf = machine.trireme("stop", "deaf")
    assert deaf.returncode == 1
    assert "could not stop run deaf" in deaf.stderr


@pytest.mark.parametrize(
    "args", [("stack",), ("preempt",), ("capacity",), ("capacity", "--num-cpus", "4")], ids=lambda args: " ".join(args)
)
def test_runs_that_do_not_answer(machine: Machine, args: tuple[str, ...]) -> None:
    command, *options = args
    unknown = machine.trireme(command, "digits", *options)
    assert unknown.returncode == 1
    assert "digits" in unknown.stderr
    machine.add_run("digits", happy_events())
    over = machine.trireme(command, "digits", *options)
    assert over.returncode == 1
    assert "run digits is not running; `trireme show digits` shows how it ended" in over.stderr
    machine.add_run("deaf", happy_events()[:4], active=True)
    deaf = machine.trireme(command, "deaf", *options)
    assert deaf.returncode == 1
    assert "run deaf" in deaf.stderr
    assert "could not reach" in deaf.stderr


def test_env(machine: Machine) -> None:
    machine.add_run("digits", happy_events())
    told = json.loads(machine.trireme("env", "--json", TRIREME_NUM_CPUS="8").stdout)
    assert told["cpus"]["usable"] >= 1
    assert told["memory"]["total"] > 0
    assert told["declared"]["TRIREME_NUM_CPUS"] == "8"
    assert told["results"]["path"] == str(machine.results)
    assert told["results"]["bytes"] > 0
    assert told["python"]["version"].startswith("3.")
    shown = machine.trireme("env").stdout
    assert str(machine.results) in shown
    assert "CPUs" in shown


@pytest.mark.skipif(not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not built: run `make build` first")
def test_env_lists_gpus(machine: Machine) -> None:
    variables = {
        "LD_LIBRARY_PATH": str(FAKE_DRIVER),
        "TRIREME_FAKE_NVML": "NVIDIA T4|GPU-aa;NVIDIA H100|GPU-bb;NVIDIA H100|GPU-cc",
        "CUDA_VISIBLE_DEVICES": "GPU-cc,GPU-aa",
    }
    told = json.loads(machine.trireme("env", "--json", **variables).stdout)
    assert told["gpus"] == [{"id": "GPU-cc", "type": "NVIDIA H100"}, {"id": "GPU-aa", "type": "NVIDIA T4"}]
    assert told["declared"]["CUDA_VISIBLE_DEVICES"] == "GPU-cc,GPU-aa"
    assert "2 (GPU-cc: NVIDIA H100, GPU-aa: NVIDIA T4)" in machine.trireme("env", **variables).stdout


def test_run_refuses_before_python_starts(machine: Machine, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("")
    for args, said in (
        (("absent.py",), "script 'absent.py' not found"),
        ((str(tmp_path),), "is a folder"),
        (("--bogus", str(script)), "`trireme run` has no option '--bogus'"),
        ((), "no script given"),
    ):
        refused = machine.trireme("run", *args)
        assert refused.returncode == 2
        assert said in refused.stderr
    assert machine.trireme("run", "--num-workers", "many", str(script)).returncode == 2


def test_the_packages_program_contains_only_a_loader(tmp_path: Path) -> None:
    """The core is in the extension; no Python runs in the process, even if all symbols are resolved at the start."""
    program = next(path for place in trireme.__path__ if (path := Path(place) / "bin/trireme").exists())
    extension = Path(_core.__file__)
    assert program.stat().st_size < extension.stat().st_size / 50
    copied = tmp_path / "bin/trireme"
    copied.parent.mkdir()
    shutil.copy(program, copied)

    def version() -> subprocess.CompletedProcess[str]:
        env = {"LD_BIND_NOW": "1"}
        return subprocess.run([copied, "--version"], env=env, capture_output=True, text=True, check=False)

    missing = version()
    assert missing.returncode == 1
    assert f"{tmp_path / extension.name}: cannot open" in missing.stderr
    assert "this installation is incomplete, reinstall trireme" in missing.stderr
    (tmp_path / extension.name).symlink_to(extension)
    assert version().stdout.startswith("trireme ")
