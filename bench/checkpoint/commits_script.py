"""1,000 tiny checkpoints, each committed before the next; writes the seconds of every hundred."""

import json
import os
import time

import trireme

HUNDREDS = 10


def train() -> None:
    times = []
    for hundred in range(HUNDREDS):
        began = time.perf_counter()
        for step in range(100):
            checkpoint = trireme.Checkpoint.from_dict({"step": hundred * 100 + step})
            trireme.report({"step": hundred * 100 + step}, checkpoint=checkpoint)
        times.append(time.perf_counter() - began)
    with open(os.path.join(os.environ["BENCH_FOLDER"], "times.json"), "w") as file:
        json.dump(times, file)


if __name__ == "__main__":
    result = trireme.DataParallelTrainer(train).fit()
    assert result.metrics is not None and result.metrics["step"] == HUNDREDS * 100 - 1
    assert len(result.best_checkpoints) == HUNDREDS * 100
