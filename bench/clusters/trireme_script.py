"""Three runs of 2 torch workers on 2 nodes: `trireme run --engine ... trireme_script.py`."""

from stamps import stamp
from training import FITS, reach, steps

import trireme
from trireme import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer


def train_func(config: dict) -> None:
    if config["fit"] < FITS - 1:
        return reach(config["fit"])
    saved = trireme.get_checkpoint()
    rank = trireme.get_context().get_world_rank()

    def save(step: int) -> None:
        trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}) if rank == 0 else None)

    steps(saved.to_dict()["step"] + 1 if saved else 0, save)


if __name__ == "__main__":
    for fit in range(FITS):
        stamp(f"fit_{fit}_begin")
        TorchTrainer(
            train_func,
            train_loop_config={"fit": fit},
            scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
            run_config=RunConfig(failure_config=FailureConfig(max_failures=1)),
        ).fit()
