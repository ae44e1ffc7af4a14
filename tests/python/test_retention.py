"""Which checkpoints are kept."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

import trireme
from runs import events
from trireme import Checkpoint, CheckpointConfig, DataParallelTrainer, Result, RunConfig, ScalingConfig

CASES: list[tuple[dict[str, Any], list[Any], list[int]]] = [
    ({}, [3, 1, 2], [0, 1, 2]),
    ({"num_to_keep": 2}, [3, 1, 2], [1, 2]),
    ({"checkpoint_score_attribute": "score"}, [3, 1, 2], [1, 2, 0]),
    ({"checkpoint_score_attribute": "score", "checkpoint_score_order": "min"}, [3, 1, 2], [0, 2, 1]),
    ({"num_to_keep": 1, "checkpoint_score_attribute": "score"}, [1, 9, 2], [1]),
    ({"num_to_keep": 2, "checkpoint_score_attribute": "score"}, [5, math.nan, 7, math.nan], [0, 2]),
    ({"num_to_keep": 2, "checkpoint_score_attribute": "score"}, [5, None, 7, None], [0, 2]),
    (
        {"num_to_keep": 2, "checkpoint_score_attribute": "score", "checkpoint_score_order": "min"},
        [5, None, 7, math.nan],
        [2, 0],
    ),
    ({"num_to_keep": 2, "checkpoint_score_attribute": "eval/score"}, [5, 1, 7], [0, 2]),
]


def fit(config: dict[str, Any], scores: list[Any]) -> Result:
    def train() -> None:
        nested = "/" in config.get("checkpoint_score_attribute", "")
        for step, score in enumerate(scores):
            metrics: dict[str, Any] = {"step": step}
            if score is not None:
                metrics |= {"eval": {"score": score}} if nested else {"score": score}
            trireme.report(metrics, checkpoint=Checkpoint.from_dict({"step": step}))

    run = RunConfig(name="run", checkpoint_config=CheckpointConfig(**config))
    return DataParallelTrainer(train, run_config=run).fit()


def steps_of(result: Result) -> list[int]:
    return [metrics["step"] for _, metrics in result.best_checkpoints or []]


@pytest.mark.parametrize(("config", "scores", "kept"), CASES, ids=range(len(CASES)))
def test_best_checkpoints_worst_first(config: dict[str, Any], scores: list[Any], kept: list[int]) -> None:
    result = fit(config, scores)
    assert steps_of(result) == kept
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict() == {"step": len(scores) - 1}, "the latest checkpoint is always kept"
    folders = {name for name in os.listdir(result.path or "") if name.startswith("checkpoint_")}
    assert folders == {f"checkpoint_{step:06}" for step in {*kept, len(scores) - 1}}
    assert steps_of(Result.from_path(result.path or "")) == kept


def test_get_best_checkpoint() -> None:
    result = fit({"checkpoint_score_attribute": "score"}, [3, math.nan, 9, None])
    assert result.get_best_checkpoint("score", "max").to_dict() == {"step": 2}
    assert result.get_best_checkpoint("score", "min").to_dict() == {"step": 0}
    with pytest.raises(ValueError, match="mode"):
        result.get_best_checkpoint("score", "best")
    with pytest.raises(RuntimeError, match="Invalid metric name 'loss'"):
        result.get_best_checkpoint("loss", "min")


def test_retention_includes_checkpoints_of_earlier_starts(results: Path) -> None:
    config = {"num_to_keep": 1, "checkpoint_score_attribute": "score"}

    def train(scores: list[float]) -> Any:
        def function() -> None:
            for score in scores:
                trireme.report({"score": score}, checkpoint=Checkpoint.from_dict({"score": score}))

        run = RunConfig(name="run", checkpoint_config=CheckpointConfig(**config))
        return DataParallelTrainer(function, run_config=run).fit()

    train([1, 9])
    result = train([2, 3])
    assert [checkpoint.to_dict() for checkpoint, _ in result.best_checkpoints] == [{"score": 9}]
    assert result.checkpoint.to_dict() == {"score": 3}
    assert sorted(path.name for path in (results / "run").glob("checkpoint_*")) == [
        "checkpoint_000001",
        "checkpoint_000003",
    ]


def test_names_that_are_reused() -> None:
    """Retention deletes the previous checkpoint while its name is written again."""

    def train() -> None:
        for step in range(40):
            trireme.report(
                {"step": step},
                checkpoint=Checkpoint.from_dict({"step": step, "rank": trireme.get_context().get_world_rank()}),
                checkpoint_dir_name=f"slot{step % 2}",
            )

    run = RunConfig(name="run", checkpoint_config=CheckpointConfig(num_to_keep=1))
    result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
    assert result.error is None
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == 39
    assert steps_of(result) == [39]
    assert [event["message"] for event in events(result.path, "warning")] == []
    folders = {path.name for path in Path(result.path or "").iterdir() if path.name.startswith("slot")}
    assert folders == {"slot1"}
