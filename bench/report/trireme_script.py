"""Metrics-only reports from 2 workers, as fast as possible."""

import json
import os
import time

import trireme

CALLS = 20_000


def train_func() -> None:
    trireme.collective.barrier()
    began = time.perf_counter()
    for step in range(CALLS):
        trireme.report({"loss": 0.5, "accuracy": 0.75, "step": step})
    seconds = time.perf_counter() - began
    with open(os.path.join(os.environ["BENCH_FOLDER"], f"rank_{trireme.get_context().get_world_rank()}"), "w") as file:
        json.dump(CALLS / seconds, file)


if __name__ == "__main__":
    result = trireme.DataParallelTrainer(train_func, scaling_config=trireme.ScalingConfig(num_workers=2)).fit()
    # Includes recording: fit() returns when the last report is in the event log.
    assert result.metrics is not None and result.metrics["step"] == CALLS - 1
