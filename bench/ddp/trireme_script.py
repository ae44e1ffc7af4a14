"""The same loop under Trireme."""

import sys

from loop import serve

import trireme
from trireme import ScalingConfig
from trireme.torch import TorchTrainer, prepare_model


def train(config: dict) -> None:
    serve(config["form"], trireme.get_context().get_world_rank(), prepare_model)


if __name__ == "__main__":
    TorchTrainer(train, train_loop_config={"form": sys.argv[1]}, scaling_config=ScalingConfig(num_workers=2)).fit()
