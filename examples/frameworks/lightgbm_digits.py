"""LightGBM on two workers: handwritten digits, with the trainer's own loop.

Kill a worker while it runs (`kill -9`, or --kill): training continues from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import trireme
from trireme import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from trireme.lightgbm import LightGBMTrainer, predict


class KillOnce:
    """A callback of LightGBM."""

    first: int | None = None  # round of this attempt

    def __call__(self, env: Any) -> None:
        if self.first is None:
            self.first = env.iteration
        if env.iteration == 7 and trireme.get_context().get_world_rank() == 1 and self.first == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="lightgbm_digits")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 in round 7")
    arguments = parser.parse_args()

    frame = load_digits(as_frame=True).frame
    train, test = trireme.data.from_pandas(frame).train_test_split(0.25, shuffle=True, seed=0)
    trainer = LightGBMTrainer(
        params={"objective": "multiclass", "num_class": 10, "metric": "multi_error", "num_leaves": 15},
        label_column="target",
        num_boost_round=arguments.rounds,
        datasets={"train": train, "test": test},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=arguments.name,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=5),
            failure_config=FailureConfig(max_failures=1),
        ),
        callbacks=[KillOnce()] if arguments.kill else None,
    )
    result = trainer.fit()
    predicted = predict(result.checkpoint, test).to_pandas()
    digits = np.stack(predicted["predictions"]).argmax(axis=1)
    accuracy = (digits == predicted["target"]).mean()
    print(f"accuracy {accuracy:.1%} of {len(predicted)} digits after {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
