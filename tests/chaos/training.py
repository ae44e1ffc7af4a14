"""The script of a chaos scenario, small and deterministic: `python -m chaos.training SCENARIO.json`."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from typing import Any

import trireme
from chaos import sharded
from chaos.inside import Inside
from chaos.scenario import CHECKPOINT_EVERY, STEPS, Scenario, read
from trireme import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    DataConfig,
    FailureConfig,
    RunConfig,
    ScalingConfig,
)

SAMPLES = 4
REPORTS_AT_ONCE = 20  # per thread and step
ROWS, BATCH_ROWS = 47, 12  # of the dataset: the steps span several epochs


def gradient(weight: float, step: int) -> float:
    return sum(weight - ((step * 7 + sample * 3) % 11) / 11 for sample in range(SAMPLES)) / SAMPLES


class Plain:
    """Every rank computes the same values, which is checked at each step."""

    def __init__(self) -> None:
        self.weight, self.applied = 0.5, [0] * STEPS

    def load(self, state: dict[str, Any]) -> None:
        self.weight, self.applied = state["weight"], list(state["applied"])

    def state(self) -> dict[str, Any]:
        return {"weight": self.weight, "applied": self.applied}

    def advance(self, step: int) -> float:
        lead = trireme.collective.broadcast_from_rank_zero((step, self.weight))
        if lead != (step, self.weight):
            raise RuntimeError(f"ranks disagree: rank 0 is at {lead}, this one at {(step, self.weight)}")
        self.applied[step] += 1
        slope = gradient(self.weight, step)
        self.weight -= 0.3 * slope
        return slope * slope


class Data(Plain):
    """Reads a mapped global batch of a shuffled dataset at each step, and checks that it is the expected one."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = trireme.get_dataset_shard("train")
        self.batches: Any = iter(())

    def advance(self, step: int) -> float:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.shard.iter_batches(global_batch_size=BATCH_ROWS))
            batch = next(self.batches)
        epoch, place = divmod(step, math.ceil(ROWS / BATCH_ROWS))
        expected = epoch, min((place + 1) * BATCH_ROWS, ROWS)
        state = self.shard.state()
        if (state["epoch"], state["rows"]) != expected:
            raise RuntimeError(f"step {step} got the data up to {state}, expected {expected}")
        if (batch["twice"] != 2 * batch["id"]).any():
            raise RuntimeError(f"the function was not applied: {batch}")
        return super().advance(step)


def twice(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "twice": 2 * batch["id"]}


def datasets() -> dict[str, Any]:
    import trireme.data

    return {"train": trireme.data.range(ROWS, override_num_blocks=5).random_shuffle(seed=7).map_batches(twice)}


class Torch:
    """Real data parallel training: the ranks count together what each one contributes to a step."""

    def __init__(self) -> None:
        import torch

        from trireme.torch import prepare_model

        torch.manual_seed(0)
        self.torch, self.network = torch, torch.nn.Linear(3, 1).double()
        self.model = prepare_model(self.network)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9)
        self.applied = torch.zeros(STEPS, dtype=torch.int64)

    def load(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.applied = state["applied"].clone()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "applied": self.applied,
            "weight": [weight.item() for part in self.network.parameters() for weight in part.flatten()],
        }

    def advance(self, step: int) -> float:
        torch, context = self.torch, trireme.get_context()
        source = torch.Generator().manual_seed(1000 * step + context.get_world_rank())
        inputs = torch.randn(4, 3, generator=source, dtype=torch.float64)
        loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        counted = torch.zeros(STEPS, dtype=torch.int64)
        counted[step] = 1
        total = loss.detach().clone()
        if context.get_world_size() > 1:
            torch.distributed.all_reduce(counted)
            torch.distributed.all_reduce(total)
        self.applied += counted
        return float(total)


def resumed(scenario: Scenario, rank: int) -> dict[str, Any] | None:
    """A rank without its own part in the checkpoint uses that of another rank: all are the same."""
    checkpoint = trireme.get_checkpoint()
    if checkpoint is None:
        return None
    if scenario.checkpoint == "sharded":
        with checkpoint.as_directory() as folder:
            return read_shard(scenario, folder, rank)
    if not in_folders(scenario):
        return checkpoint.to_dict()
    with checkpoint.as_directory() as folder:
        parts = sorted(name for name in os.listdir(folder) if name.startswith("part_"))
        own = f"part_{rank}.json"
        with open(os.path.join(folder, own if own in parts else parts[0])) as file:
            return dict(json.load(file))


def read_shard(scenario: Scenario, folder: str, rank: int) -> dict[str, Any]:
    """The rank's own part, or after a resize another one. The parts of all previous ranks must exist."""
    world = int(sharded.whole(folder)["world"])
    own = os.path.join(folder, f"rank_{rank if rank < world else 0}")
    if scenario.trainer == "torch":
        import torch

        return dict(torch.load(os.path.join(own, "state.pt")))
    return sharded.read(own)


def in_folders(scenario: Scenario) -> bool:
    return scenario.checkpoint == "folder" and scenario.trainer != "torch"


def stored(scenario: Scenario, state: dict[str, Any], folder: str, rank: int, step: int) -> Checkpoint:
    if scenario.checkpoint == "sharded":
        mine = os.path.join(folder, f"made_{rank}_{step}_{os.getpid()}")
        world = trireme.get_context().get_world_size()
        sharded.write(mine, rank, world, {**state, "applied": [int(count) for count in state["applied"]]})
        if scenario.trainer == "torch":
            import torch

            torch.save(state, os.path.join(mine, f"rank_{rank}", "state.pt"))
        with open(os.path.join(mine, f"rank_{rank}", "padding"), "wb") as file:
            file.write(bytes(scenario.padding))
        return Checkpoint.from_directory(mine)
    if not in_folders(scenario):
        return Checkpoint.from_dict({**state, "padding": bytes(scenario.padding)})
    mine = os.path.join(folder, f"made_{rank}_{step}_{os.getpid()}")
    os.makedirs(mine, exist_ok=True)
    with open(os.path.join(mine, f"part_{rank}.json"), "w") as file:
        json.dump(state, file)
    with open(os.path.join(mine, f"padding_{rank}"), "wb") as file:
        file.write(bytes(scenario.padding))
    return Checkpoint.from_directory(mine)


def report_at_once(threads: int, step: int) -> None:
    """Metrics only: their order does not matter, and each rank makes the same number of reports."""
    failures: list[BaseException] = []

    def report() -> None:
        try:
            for _ in range(REPORTS_AT_ONCE):
                trireme.report({"step": step})
        except BaseException as error:  # also an interrupt, which belongs to the thread that runs the function
            failures.append(error)

    others = [threading.Thread(target=report) for _ in range(threads - 1)]
    for other in others:
        other.start()
    try:
        report()
    finally:  # no thread may report after the function has been left
        for other in others:
            other.join()
    if failures:
        raise failures[0]


def train(config: dict[str, Any]) -> list[int]:
    scenario: Scenario = config["scenario"]
    rank = trireme.get_context().get_world_rank()
    inside = Inside(scenario, config["folder"], rank)
    inside.reach("rendezvous")
    trireme.collective.barrier()
    model = {"torch": Torch, "data": Data, "plain": Plain}[scenario.trainer]()
    first = 0
    if state := resumed(scenario, rank):
        first = state["next"]
        model.load(state)
    for step in range(first, STEPS):
        inside.reach("step", step)
        loss = model.advance(step)
        time.sleep(scenario.pace_s)
        inside.reach("report", step)
        if scenario.reporters > 1:
            report_at_once(scenario.reporters, step)
        metrics = {"loss": loss, "step": step}
        if (step + 1) % CHECKPOINT_EVERY or (scenario.only_rank_zero and rank > 0):
            trireme.report(metrics)
            continue
        checkpoint = stored(scenario, {**model.state(), "next": step + 1}, config["folder"], rank, step)
        inside.reach_beside("upload", step)
        name = f"slot{step // CHECKPOINT_EVERY % 2}" if scenario.slots else None
        trireme.report(metrics, checkpoint, name, CheckpointUploadMode[scenario.mode])
    inside.reach("shutdown")
    return [int(count) for count in model.applied]


def storage(scenario: Scenario) -> dict[str, Any]:
    if not scenario.far:
        return {}
    from chaos.far import FarFiles

    return {"storage_path": os.environ["TRIREME_RESULTS"], "storage_filesystem": FarFiles()}


def run_config(scenario: Scenario) -> RunConfig:
    return RunConfig(
        name="chaos",
        **storage(scenario),
        stop_grace_s=3,
        failure_config=FailureConfig(
            max_failures=12,
            restart_backoff_s=0.1,
            cancel_timeout_s=2.0,
            warm_restart="auto" if scenario.auto_restart else scenario.warm_restart,
            hang_timeout_s=float(os.environ["TRIREME_CHAOS_HANG_S"]),
            on_hang="restart",
            preemption_grace_s=3.0,
        ),
        checkpoint_config=CheckpointConfig(keep_in_memory=scenario.keep_in_memory, num_to_keep=scenario.num_to_keep),
    )


def main() -> None:
    scenario = read(sys.argv[1])
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))
    trainer_cls: Any = trireme.DataParallelTrainer
    if scenario.trainer == "torch":
        from trireme.torch import TorchTrainer as trainer_cls
    workers = (scenario.workers, scenario.most_workers) if scenario.elastic else scenario.workers
    trainer = trainer_cls(
        train,
        train_loop_config={"scenario": scenario, "folder": folder},
        scaling_config=ScalingConfig(num_workers=workers, trainer_resources={}, elastic_resize_monitor_interval_s=0.5),
        run_config=run_config(scenario),
        datasets=datasets() if scenario.trainer == "data" else None,
        dataset_config=DataConfig(log_samples=True),
    )
    print("RESULT", json.dumps(trainer.fit().return_value))


if __name__ == "__main__":
    main()
