"""The loop under Trireme: `trireme_script.py [cold]`."""

import sys

from loop import State, train

import trireme
from trireme import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, prepare_model


def saved() -> State | None:
    checkpoint = trireme.get_checkpoint()
    return checkpoint.to_dict() if checkpoint else None


def save(step: int, state: State | None) -> None:
    trireme.report({"step": step}, checkpoint=Checkpoint.from_dict(state) if state else None)


def train_func() -> None:
    context = trireme.get_context()
    train(context.get_world_rank(), context.get_world_size(), prepare_model, saved, save)


if __name__ == "__main__":
    failures = FailureConfig(max_failures=-1, warm_restart="cold" not in sys.argv)
    TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="recover", failure_config=failures),
    ).fit()
