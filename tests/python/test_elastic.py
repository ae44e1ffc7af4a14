"""Runs that grow and shrink with the machine's capacity without losing a step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from runs import events, fit, trireme_command
from trireme import Checkpoint, ConfigError, FailureConfig, ScalingConfig, UserCallback, collective

ITEMS = 12  # per step, divided among the workers


def train(config: dict[str, Any]) -> list[int]:
    """Adds up numbers until the gang has had all expected sizes, in this order, and a file exists."""
    context = trireme.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    checkpoint = trireme.get_checkpoint()
    state = checkpoint.to_dict() if checkpoint else {"step": 0, "sizes": []}
    if state["sizes"][-1:] != [size]:
        state["sizes"].append(size)
    while state["sizes"] != config["sizes"]:
        mine = sum(range(state["step"] * ITEMS + rank, (state["step"] + 1) * ITEMS, size))
        state["step"] += 1
        trireme.report({"sum": mine, "size": size}, checkpoint=Checkpoint.from_dict(state) if rank == 0 else None)
        collective.barrier()
        time.sleep(0.01)
    assert processes.wait_until(Path(config.get("until", "/")).exists)
    return [state["step"], *state["sizes"]]


class Steps(UserCallback):
    """Runs the next action when the gang has reported with the expected size."""

    def __init__(self, *steps: tuple[int, Callable[[], Any]]) -> None:
        self._steps = list(steps)

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if self._steps and metrics[0]["size"] == self._steps[0][0] == len(metrics):
            self._steps.pop(0)[1]()


def check_sums(folder: Any, steps: int) -> None:
    """Every step was done exactly once, by all workers of one gang."""
    sums: dict[int, list[int]] = {}
    attempts: dict[int, set[int]] = {}
    for event in events(folder, "report"):
        sums.setdefault(event["index"], []).append(event["metrics"]["sum"])
        attempts.setdefault(event["index"], set()).add(event["attempt"])
    assert sorted(sums) == list(range(steps))
    assert all(len(of) == 1 for of in attempts.values())
    for index, parts in sums.items():
        assert sum(parts) == sum(range(index * ITEMS, (index + 1) * ITEMS)), index


def test_grows_and_shrinks_with_capacity(declared: Any, capfd: pytest.CaptureFixture[str]) -> None:
    refusals: list[str] = []

    def too_little() -> None:
        with pytest.raises(ConfigError) as caught:
            trireme.set_capacity(num_cpus=0)
        refusals.append(str(caught.value))
        trireme.set_capacity(num_cpus=10)  # more than the run may have

    declared(num_cpus=2)
    does = Steps((2, too_little), (3, lambda: trireme.set_capacity(num_cpus=1)))
    result = fit(train, (1, 3), {"sizes": [2, 3, 1]}, callbacks=[does], warm_restart=True)
    steps, *sizes = result.return_value
    assert sizes == [2, 3, 1]
    check_sums(result.path, steps)
    assert "num_cpus = 0 is less than what is in use" in refusals[0]

    resizes = events(result.path, "resizing")
    assert [(event["from"], event["to"]) for event in resizes] == [(2, 3), (3, 1)]
    assert [event["kept"] for event in events(result.path, "attempt_started")] == [0, 2, 1]
    assert events(result.path, "attempt_failed", "worker_failed") == []
    wanted = events(result.path, "resize_wanted")
    assert "capacity was lowered from 10 to 1 CPU" in wanted[-1]["why"]
    # The last size is at the end of the function, without a report.
    assert [(told["kind"], told["kept"], told["replaced"]) for told in events(result.path, "restarted")] == [
        ("warm", 2, 1)
    ]
    assert "resizing from 2 to 3 workers (at a checkpoint)" in capfd.readouterr().out


def test_ranks_keep_their_order_and_processes(declared: Any) -> None:
    """Rank 0 stays on its process: it has the warm caches, and often the only checkpoint."""
    declared(num_cpus=1)
    does = Steps((1, lambda: trireme.set_capacity(num_cpus=2)), (2, lambda: trireme.set_capacity(num_cpus=1)))
    result = fit(train, (1, 2), {"sizes": [1, 2, 1]}, callbacks=[does], warm_restart=True)
    check_sums(result.path, result.return_value[0])
    started = events(result.path, "worker_started")
    assert [event["rank"] for event in started] == [0, 1], "only the added worker"
    kept = events(result.path, "worker_kept")
    assert [(event["rank"], event["pid"]) for event in kept] == [(0, started[0]["pid"])] * 2


@pytest.mark.torch
def test_process_groups_follow(declared: Any) -> None:
    from trireme.torch import TorchTrainer, prepare_model

    def train() -> list[Any]:
        import torch
        import torch.distributed as dist

        context = trireme.get_context()
        checkpoint = trireme.get_checkpoint()
        state: dict[str, Any] = checkpoint.to_dict() if checkpoint else {"step": 0, "sizes": [], "weight": None}
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        if state["weight"] is not None:
            model.load_state_dict({"weight": state["weight"]})
        model = prepare_model(model)
        size = dist.get_world_size() if dist.is_initialized() else 1
        assert size == context.get_world_size()
        if state["sizes"][-1:] != [size]:
            state["sizes"].append(size)
        while state["sizes"] != [1, 2, 1]:
            # The mean over 4 examples, for any number of workers: the weight grows by the same 2.5.
            examples = torch.arange(1.0, 5.0)[context.get_world_rank() :: size].reshape(-1, 1)
            model.zero_grad()
            model(examples).mean().backward()
            with torch.no_grad():
                for weight in model.parameters():
                    weight += weight.grad
            state["step"] += 1
            state["weight"] = next(model.parameters()).detach().clone()
            mine = Checkpoint.from_dict(state) if context.get_world_rank() == 0 else None
            trireme.report({"size": size, "weight": state["weight"].item(), "step": state["step"]}, checkpoint=mine)
        return [state["step"], state["weight"].item()]

    declared(num_cpus=1)
    does = Steps((1, lambda: trireme.set_capacity(num_cpus=2)), (2, lambda: trireme.set_capacity(num_cpus=1)))
    result = fit(train, (1, 2), callbacks=[does], trainer_class=TorchTrainer)
    step, weight = result.return_value
    assert weight == pytest.approx(2.5 * step)
    assert events(result.path, "attempt_failed") == []


def test_capacity_command(declared: Any, results: Path, tmp_path: Path) -> None:
    said: dict[str, Any] = {}
    asked = tmp_path / "asked"  # before that the run must not end

    def ask() -> None:
        said["now"] = trireme_command("capacity", "run")
        said["less"] = trireme_command("capacity", "--num-cpus", "0.5")
        said["more"] = trireme_command("capacity", "--num-cpus", "2", "--resource", "licence=3")
        said["after"] = trireme_command("capacity")
        asked.touch()

    declared(num_cpus=1)
    config = {"sizes": [1, 2], "until": str(asked)}
    result = fit(train, (1, 2), config, callbacks=[Steps((1, ask))])
    check_sums(result.path, result.return_value[0])
    assert said["now"].returncode == 0, said["now"].stderr
    assert said["now"].stdout.split()[0] == "run"
    assert "CPU 1 of 1 in use" in said["now"].stdout
    assert said["less"].returncode == 1
    assert "num_cpus = 0.5 is less than what is in use" in said["less"].stderr
    assert said["more"].returncode == 0, said["more"].stderr
    assert "licence 0 of 3" in said["after"].stdout
    assert " of 2" in said["after"].stdout
    nobody = trireme_command("capacity", "--num-cpus", "2")
    assert nobody.returncode == 1
    assert "no run is active on this machine" in nobody.stderr


def test_from_a_thread(declared: Any, results: Path) -> None:
    def raise_capacity() -> None:
        log = results / "run" / "events.jsonl"
        assert processes.wait_until(lambda: log.exists() and '"report"' in log.read_text())
        trireme.set_capacity(num_cpus=2)

    declared(num_cpus=1)
    thread = threading.Thread(target=raise_capacity)
    thread.start()
    result = fit(train, (1, 2), {"sizes": [1, 2]})
    thread.join()
    check_sums(result.path, result.return_value[0])


def test_nothing_starts_if_the_minimum_does_not_fit(declared: Any) -> None:
    declared(num_cpus=1)
    with pytest.raises((ConfigError, trireme.TrainingFailedError), match="CPU: 2 needed"):
        fit(train, (2, 3), {"sizes": []})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: FailureConfig(max_failures=-2), "max_failures = -2"),
        (lambda: ScalingConfig(num_workers=(4, 2)), "the minimum is above the maximum"),
        (lambda: ScalingConfig(num_workers=(0, 2)), "num_workers"),
        (lambda: ScalingConfig(num_workers=(-1, 2)), "num_workers"),
        (lambda: ScalingConfig(elastic_resize_monitor_interval_s=0), "elastic_resize_monitor_interval_s = 0"),
        (lambda: FailureConfig(cancel_timeout_s=-1.0), "cancel_timeout_s = -1"),
        (lambda: FailureConfig(repeated_error_limit=-1), "repeated_error_limit"),
        (lambda: FailureConfig(max_preemption_failures=-2), "max_preemption_failures = -2"),
        (lambda: trireme.set_capacity(num_cpus=-1), "num_cpus = -1"),
        (lambda: trireme.set_capacity(num_cpus=float("nan")), "num_cpus = nan"),
        (lambda: trireme.set_capacity(num_gpus=0.5), "must be an integer"),
        (lambda: trireme.set_capacity(resources={"CPU": 2}), "use num_cpus instead"),
        (lambda: trireme.set_capacity(resources={"licence": -2}), "licence = -2"),
    ],
)
def test_refused(made: Callable[[], Any], said: str, declared: Any) -> None:
    with pytest.raises(ConfigError, match=said):
        made()


def test_not_from_a_worker() -> None:
    def train() -> str:
        try:
            trireme.set_capacity(num_cpus=2)
        except ConfigError as error:
            return str(error)
        return "it went through"

    assert "call it in the driver" in fit(train, 1).return_value
