"""XGBoost on two workers: handwritten digits, with the trainer's own loop.

Kill a worker while it runs (`kill -9`, or --kill): training continues from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import xgboost
from sklearn.datasets import load_digits

import trireme
from trireme import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from trireme.xgboost import XGBoostTrainer, predict


class KillOnce(xgboost.callback.TrainingCallback):
    def before_training(self, model: Any) -> Any:
        self.resumed = trireme.get_checkpoint() is not None
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 7 and trireme.get_context().get_world_rank() == 1 and not self.resumed:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="xgboost_digits")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 in round 7")
    arguments = parser.parse_args()

    frame = load_digits(as_frame=True).frame
    train, test = trireme.data.from_pandas(frame).train_test_split(0.25, shuffle=True, seed=0)
    trainer = XGBoostTrainer(
        params={"objective": "multi:softmax", "num_class": 10, "eval_metric": "merror", "max_depth": 4},
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
    accuracy = (predicted["predictions"] == predicted["target"]).mean()
    print(f"accuracy {accuracy:.1%} of {len(predicted)} digits after {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
