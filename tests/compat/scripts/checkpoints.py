"""Scores, retention, metadata, names of one's own, and what a worker finds."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, name_of, record
from ray.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    RunConfig,
    ScalingConfig,
)
from ray.train.torch import TorchTrainer


def train_func(config):
    shown = []
    for step, score in enumerate(config["scores"]):
        folder = tempfile.mkdtemp()
        with open(os.path.join(folder, "score"), "w") as file:
            file.write(str(score))
        checkpoint = Checkpoint.from_directory(folder)
        checkpoint.set_metadata({"step": step})
        checkpoint.update_metadata({"more": [step]})
        mode = CheckpointUploadMode.ASYNC if step == 1 else CheckpointUploadMode.SYNC
        ray.train.report(
            {"score": score, "nested": {"step": step}},
            checkpoint=checkpoint,
            checkpoint_dir_name=f"step_{step}",
            checkpoint_upload_mode=mode,
        )
    for each in ray.train.get_all_reported_checkpoints(consistency_mode=CheckpointConsistencyMode.COMMITTED):
        shown.append([name_of(each.checkpoint), each.metrics["score"], each.status.name])
    return shown, ray.train.get_checkpoint().get_metadata()


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        train_loop_config={"scores": [3, 1, 4, 1.5, 2]},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(
            name="checkpoints",
            storage_path=STORAGE,
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score"),
        ),
    ).fit()
    kept = sorted(name for name in os.listdir(result.path) if name.startswith("step_"))
    target = result.checkpoint.to_directory(os.path.join(tempfile.mkdtemp(), "copy"))
    errors = []
    for ask in (("score", "best"), ("unknown", "max")):
        try:
            result.get_best_checkpoint(*ask)
        except Exception as error:
            errors.append(type(error).__name__)
    record(
        result=described(result),
        kept=kept,
        files=sorted(name for name in os.listdir(target) if not name.startswith(".trireme")),
        best=name_of(result.get_best_checkpoint("nested/step", "min")),
        errors=errors,
    )
