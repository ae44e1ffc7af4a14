"""Continue a run by its name, and from its folder with Trainer.restore()."""

import trireme
from trireme import Checkpoint, DataParallelTrainer, Result, RunConfig


def train(config):
    checkpoint = trireme.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(first, config["steps"]):
        trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
    return first


def fit(steps):
    run_config = RunConfig(name="resume", storage_path="runs")
    return DataParallelTrainer(train, train_loop_config={"steps": steps}, run_config=run_config).fit()


if __name__ == "__main__":
    print(f"started at step {fit(3).return_value}")
    print(f"resumed at step {fit(5).return_value}")
    restored = DataParallelTrainer.restore("runs/resume", train_loop_config={"steps": 8})
    print(f"restored and resumed at step {restored.fit().return_value}")
    result = Result.from_path("runs/resume")
    print(f"the folder has {len(result.metrics_history())} reports and {len(result.best_checkpoints)} checkpoints")
