"""A small network with DeepSpeed, ZeRO stage 2."""

from __future__ import annotations

import deepspeed
import torch
from harness import STEPS, Config, Steps, compile_no_operator, main, set_rank_variables

SETTINGS = {
    "train_micro_batch_size_per_gpu": 32,
    "zero_optimization": {"stage": 2},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 10**9,
}


def train(config: Config) -> None:
    done = Steps(config, set_rank_variables(config))
    if config["mode"] != "trireme":
        compile_no_operator()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=SETTINGS)
    batch, targets = torch.randn(32, 64), torch.randint(10, (32,))
    for _ in range(STEPS):
        engine.backward(torch.nn.functional.cross_entropy(engine(batch), targets))
        engine.step()
        done()
    done.end(torch.distributed.barrier)


if __name__ == "__main__":
    main(train)
