"""The job as a user of Trireme writes it: trireme_script.py xgboost|lightgbm."""

from __future__ import annotations

import os
import sys
from typing import Any

from job import CHECKPOINTS, PARAMS, ROUNDS, Stamps

import trireme
from trireme import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

LIBRARY = sys.argv[1]


def callback() -> Any:
    if LIBRARY == "xgboost":
        import xgboost

        class Stamp(xgboost.callback.TrainingCallback):  # type: ignore[misc]
            def before_training(self, model: Any) -> Any:
                self.stamps = Stamps(trireme.get_context().get_world_rank())
                return model

            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                self.stamps()
                return False

        return Stamp()
    stamps: list[Stamps] = []

    def after_iteration(env: Any) -> None:
        if not stamps:
            stamps.append(Stamps(trireme.get_context().get_world_rank()))
        stamps[0]()

    return after_iteration


def main() -> None:
    if LIBRARY == "xgboost":
        from trireme.xgboost import XGBoostTrainer as Trainer
    else:
        from trireme.lightgbm import LightGBMTrainer as Trainer  # type: ignore[assignment]
    killed = bool(os.environ.get("BENCH_KILL"))
    Trainer(
        params=PARAMS[LIBRARY],
        label_column="label",
        num_boost_round=ROUNDS,
        datasets={"train": trireme.data.read_parquet(os.environ["BENCH_ROWS"])},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(checkpoint_frequency=CHECKPOINTS if killed else 0),
        ),
        callbacks=[callback()] if killed else None,  # otherwise the reports tell when a round ends
    ).fit()


if __name__ == "__main__":
    main()
