from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import trireme
from trireme import DataParallelTrainer, RunConfig, ScalingConfig, collective


def fit(function: Any, scaling: ScalingConfig, **options: Any) -> trireme.Result:
    return DataParallelTrainer(function, scaling_config=scaling, **options).fit()


def test_a_trainer_without_resources_leaves_all_to_the_workers(declared: Any) -> None:
    declared(num_cpus=8)
    scaling = ScalingConfig(trainer_resources={"CPU": 0}, num_workers=4, resources_per_worker={"CPU": 2})
    result = fit(lambda: trireme.get_context().get_trial_resources(), scaling)
    assert result.return_value == {"CPU": 2}


def test_eight_workers_share_four_gpus_two_by_two(declared: Any) -> None:
    declared(num_cpus=40, num_gpus=4)

    def train() -> list[str] | None:
        rank = trireme.get_context().get_world_rank()
        folder = trireme.get_context().get_trial_dir()
        with open(f"{folder}/gpu_{rank}", "w") as file:
            file.write(os.environ["CUDA_VISIBLE_DEVICES"])
        collective.barrier()
        return [open(f"{folder}/gpu_{r}").read() for r in range(8)] if rank == 0 else None

    scaling = ScalingConfig(num_workers=8, use_gpu=True, resources_per_worker={"CPU": 4, "GPU": 0.5})
    assert sorted(fit(train, scaling).return_value) == ["0", "0", "1", "1", "2", "2", "3", "3"]


def test_whole_gpus_are_not_shared(declared: Any) -> None:
    declared(num_gpus=4)

    def train() -> Any:
        return collective.broadcast_from_rank_zero(os.environ["CUDA_VISIBLE_DEVICES"])

    scaling = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"GPU": 2})
    assert len(fit(train, scaling).return_value.split(",")) == 2


def test_without_use_gpu_the_variable_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "driver's own")
    assert fit(lambda: os.environ["CUDA_VISIBLE_DEVICES"], ScalingConfig()).return_value == "driver's own"


def test_what_is_declared_later_keeps_the_warm_process(declared: Any) -> None:
    declared()
    before = fit(os.getppid, ScalingConfig()).return_value
    trireme.init(num_cpus=2)
    assert fit(os.getppid, ScalingConfig()).return_value == before
    with pytest.raises(trireme.ConfigError, match="4 needed"):
        fit(os.getppid, ScalingConfig(num_workers=3))


def test_custom_resources(declared: Any) -> None:
    declared(resources={"licence": 2})
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1, "licence": 1})
    assert fit(lambda: trireme.get_context().get_trial_resources(), scaling).return_value["licence"] == 1


def test_capacity_from_the_environment(declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_NUM_CPUS", "2")
    with pytest.raises(trireme.ConfigError, match="2 available"):
        fit(lambda: None, ScalingConfig(num_workers=4))


@pytest.mark.parametrize(("cpus", "own", "threads"), [(1, None, "1"), (3, None, "3"), (3, "7", "7")])
def test_omp_num_threads_follows_the_cpus_unless_set(
    cpus: int, own: str | None, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if own:
        monkeypatch.setenv("OMP_NUM_THREADS", own)
    scaling = ScalingConfig(num_workers=1, resources_per_worker={"CPU": cpus})
    assert fit(lambda: os.environ["OMP_NUM_THREADS"], scaling).return_value == threads


def test_two_runs_share_the_declared_capacity(declared: Any, tmp_path: Any) -> None:
    """Each needs more than half of the capacity, so the second starts when the first has ended."""
    declared(num_cpus=3)
    order = tmp_path / "order"

    def train(config: dict[str, str]) -> None:
        for word in ("in", "out"):
            with open(order, "a") as file:
                file.write(f"{config['name']} {word}\n")
            if word == "in":
                collective.barrier()

    def run(name: str) -> None:
        scaling = ScalingConfig(trainer_resources={"CPU": 0}, num_workers=2)
        options = {"train_loop_config": {"name": name}, "run_config": RunConfig(name=name)}
        fit(train, scaling, **options)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    lines = order.read_text().split("\n")[:-1]
    assert len(lines) == 8
    first = lines[0].split()[0]
    assert all(line.startswith(first) for line in lines[:4])
    assert not any(line.startswith(first) for line in lines[4:])
