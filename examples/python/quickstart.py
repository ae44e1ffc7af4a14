"""The smallest run: a function on four workers, one report per step."""

import trireme
from trireme import DataParallelTrainer, RunConfig, ScalingConfig


def train(config):
    """Gradient descent on (x - target)^2. Every worker runs this; rank 0's reports are the result's metrics."""
    x = float(trireme.get_context().get_world_rank())
    for step in range(config["steps"]):
        x -= config["lr"] * 2 * (x - config["target"])
        trireme.report({"step": step, "loss": (x - config["target"]) ** 2})
    return x


if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"steps": 20, "lr": 0.1, "target": 3.0},
        scaling_config=ScalingConfig(num_workers=4),
        run_config=RunConfig(name="quickstart"),
    )
    result = trainer.fit()
    print(f"x = {result.return_value:.4g}, loss {result.metrics['loss']:.4g}")
