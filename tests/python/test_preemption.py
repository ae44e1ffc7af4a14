"""Preempted workers: announced, saved, replaced; and a driver that receives SIGTERM."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from runs import events, fit, pids, trireme_command
from trireme import Checkpoint, PreemptionError, PreemptionInfo, UserCallback, collective


def train(config: dict[str, Any]) -> dict[str, Any]:
    """Creates a checkpoint only when a preemption is announced, as its last action."""
    context = trireme.get_context()
    rank = context.get_world_rank()
    checkpoint = trireme.get_checkpoint()
    state = checkpoint.to_dict() if checkpoint else {"step": 0, "ranks": [], "deadline_ms": 0}
    # The function continues until the gang is cancelled: ranks may learn of it at different steps.
    while state["step"] < 8 or (config.get("waits") and not checkpoint):
        state["step"] += 1
        info = trireme.get_preemption_info()
        if info is not None:
            assert info.preempted_node_ids == [socket.gethostname()]
            state["ranks"], state["deadline_ms"] = info.preempted_ranks, info.deadline_ms
            trireme.report({"step": state["step"]}, checkpoint=Checkpoint.from_dict(state) if rank == 0 else None)
        else:
            trireme.report({"step": state["step"]})
            if config.get("signal") and rank == 1 and state["step"] == 3 and not checkpoint:
                os.kill(os.getpid(), signal.SIGTERM)
        collective.barrier()
        time.sleep(0.02)
    return state


def test_sigterm_to_a_worker(capfd: pytest.CaptureFixture[str]) -> None:
    before = time.time() * 1000
    result = fit(train, config={"signal": True, "waits": True}, preemption_grace_s=300.0, warm_restart=True)
    state = result.return_value
    assert state["ranks"] == [1]
    assert before + 250_000 < state["deadline_ms"] < time.time() * 1000 + 350_000
    (announced,) = events(result.path, "preemption_announced")
    lost = pids(result.path, 0)[1]
    assert (announced["ranks"], announced["why"]) == ([1], f"SIGTERM from pid {lost}")
    (verdict,) = events(result.path, "attempt_failed")
    assert (verdict["budget"], verdict["next"]) == ("max_preemption_failures", "restart")
    (failure,) = events(result.path, "worker_failed")
    assert (failure["rank"], failure["cause"], failure["error_type"]) == (1, "preemption", "Preempted")
    # Steps reported until then are not repeated.
    starts = [event["index"] for event in events(result.path, "report") if event["attempt"] == 1]
    *_, committed = [event for event in events(result.path, "checkpoint_committed") if event["attempt"] == 0]
    assert min(starts, default=committed["index"] + 1) == committed["index"] + 1
    assert pids(result.path, 1)[0] == pids(result.path, 0)[0]
    assert pids(result.path, 1)[1] != lost
    assert f"rank 1 will be preempted in 300 s: SIGTERM from pid {lost}" in capfd.readouterr().out


def handler_of_sigterm() -> int:
    action = (ctypes.c_void_p * 32)()
    assert ctypes.CDLL(None).sigaction(signal.SIGTERM, None, action) == 0
    return action[0] or 0


@pytest.mark.parametrize("replaced_by", ["library", "restored", "script"])
def test_a_notice_after_the_handler_was_replaced(replaced_by: str) -> None:
    def train() -> list[Any] | None:
        if checkpoint := trireme.get_checkpoint():
            return checkpoint.to_dict()["called"]
        called: list[int] = []
        if preempted := trireme.get_context().get_world_rank() == 1:
            replace_handler(called)
            os.kill(os.getpid(), signal.SIGTERM)
        assert processes.wait_until(lambda: trireme.get_preemption_info() is not None)
        trireme.report({}, checkpoint=Checkpoint.from_dict({"called": called}) if preempted else None)
        time.sleep(600)
        return None

    def replace_handler(called: list[int]) -> None:
        ours = handler_of_sigterm()
        libc = ctypes.CDLL(None)
        if replaced_by == "library":  # in C, as TensorFlow
            libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
            libc.signal(signal.SIGTERM, ctypes.cast(libc.labs, ctypes.c_void_p))
        elif replaced_by == "restored":  # Python does not know of a handler in C
            assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is signal.SIG_DFL
        else:
            signal.signal(signal.SIGTERM, lambda number, _: called.append(number))
        assert handler_of_sigterm() != ours
        assert processes.wait_until(lambda: handler_of_sigterm() == ours)

    result = fit(train, preemption_grace_s=300.0, stop_grace_s=0.5)
    (verdict,) = events(result.path, "attempt_failed")
    assert verdict["budget"] == "max_preemption_failures"
    assert result.return_value == ([signal.SIGTERM] if replaced_by == "script" else [])


def test_what_a_preempted_rank_has_not_reported_is_not_resumed_from() -> None:
    def train() -> int:
        context = trireme.get_context()
        checkpoint = trireme.get_checkpoint()
        if checkpoint:
            return checkpoint.to_dict()["step"]
        collective.barrier()
        if context.get_world_rank() == 1:
            trireme.report({"step": 0})
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(600)
        for step in range(3):
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        time.sleep(600)
        return -1

    # Rank 0 stores all three within this time, even on a busy disk.
    result = fit(train, preemption_grace_s=3.0, num_to_keep=1)
    assert result.return_value == 0
    (verdict,) = events(result.path, "attempt_failed")
    assert "PreemptionTimeout" in verdict["message"]
    assert [event["name"] for event in events(result.path, "checkpoint_committed")] == ["checkpoint_000000"]
    assert not events(result.path, "checkpoint_removed")
    warned = [event["message"] for event in events(result.path, "warning")]
    for name in ("checkpoint_000001", "checkpoint_000002"):
        assert any(line.startswith(f"{name} is not committed: rank 1 was preempted before") for line in warned), warned


class Announces(UserCallback):
    def __init__(self) -> None:
        self.said: list[Any] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if not self.said:
            self.said = [
                trireme_command("preempt", "run", "--rank", "5"),
                trireme_command("preempt", "run", "--rank", "0", "--deadline", "60", "--why", "spot reclaim"),
            ]


def test_preempt_command_and_the_budget_for_it(results: Path) -> None:
    announces = Announces()
    with pytest.raises(PreemptionError) as caught:
        fit(train, config={"waits": True}, callbacks=[announces], max_preemption_failures=0, max_failures=5)
    refused, done = announces.said
    assert refused.returncode == 1
    assert "no rank 5: the run has 2 workers" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert "announced to run run: rank 0 will be preempted in 60 s" in done.stdout

    error = pickle.loads(pickle.dumps(caught.value))
    for each in (error, caught.value):
        assert isinstance(each, trireme.TrainingFailedError)
        assert each.preemption_info == PreemptionInfo(None, {socket.gethostname(): [0]})
        assert each.preemption_info.preempted_ranks == [0]
        assert not each.drain_timed_out
        assert "max_preemption_failures is used up" in str(each)
    (announced,) = events(results / "run", "preemption_announced")
    assert (announced["ranks"], announced["seconds"], announced["why"]) == ([0], 60.0, "spot reclaim")


DRIVER = """
import time, trireme

def train():
    context = trireme.get_context()
    checkpoint = trireme.get_checkpoint()
    if checkpoint:
        return checkpoint.to_dict()["told"]
    step, saved = 0, False
    while True:
        step += 1
        info = trireme.get_preemption_info()
        mine = None
        if info and context.get_world_rank() == 0 and not saved:
            saved = True
            mine = trireme.Checkpoint.from_dict({"step": step, "told": info.preempted_ranks})
        trireme.report({"step": step}, checkpoint=mine)
        time.sleep(0.02)

if __name__ == "__main__":
    scaling = trireme.ScalingConfig(num_workers=2)
    result = trireme.DataParallelTrainer(train, scaling_config=scaling, run_config=trireme.RunConfig(name="run")).fit()
    print("told", result.return_value)
"""


def test_sigterm_to_the_driver_leaves_a_run_that_can_be_continued(script: Any, results: Path) -> None:
    process = script.start(DRIVER)
    log = results / "run" / "events.jsonl"
    assert processes.wait_until(lambda: log.exists() and '"report"' in log.read_text())
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, (out, err)
    assert "Traceback" not in err
    assert "SIGTERM to the driver" in out
    (announced,) = events(results / "run", "preemption_announced")
    assert announced["ranks"] == [0, 1]
    last = events(results / "run")[-1]
    assert (last["event"], last["outcome"]) == ("run_finished", "stopped")
    assert len(events(results / "run", "checkpoint_committed")) == 1
    assert processes.wait_until(lambda: not processes.left_over()), processes.left_over()

    again = script.run(DRIVER)
    assert again.returncode == 0, again.stderr
    assert "told [0, 1]" in again.stdout


def test_outside_of_a_training_function() -> None:
    with pytest.raises(RuntimeError, match="`get_preemption_info` cannot be used outside"):
        trireme.get_preemption_info()


def test_processes_of_a_worker_are_still_ended_by_sigterm() -> None:
    def forks() -> int | None:
        import multiprocessing

        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
        child.terminate()
        child.join()
        return child.exitcode

    result = fit(forks, workers=1)
    assert result.return_value == -signal.SIGTERM
    assert not events(result.path, "preemption_announced")
