"""Time of a commit on two nodes that share no storage with the driver: on its disk, or in the memory of the nodes.

Needs root, for network namespaces. From the root of the repository: .venv/bin/python bench/clusters/commits.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import namespaces  # noqa: E402
import trireme  # noqa: E402
from trireme import Checkpoint, CheckpointConfig, DataParallelTrainer, RunConfig, ScalingConfig  # noqa: E402


def train(config: dict[str, Any]) -> None:
    import time

    import numpy as np

    weights = np.zeros(config["megabytes"] * 250_000, np.float32)
    for step in range(config["steps"]):
        weights.fill(step)
        trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"weights": weights}))
        time.sleep(config["pause_s"])  # the driver has fetched it


def seconds_to_commit(folder: Path) -> list[float]:
    """From the first report of each checkpoint to its commit, both on the driver's clock."""
    reported: dict[int, float] = {}
    seconds = []
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "report":
            reported.setdefault(event["index"], event["time"])
        elif event["event"] == "checkpoint_committed":
            seconds.append(event["time"] - reported[event["index"]])
    return seconds[1:]  # the first one opens connections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=64, help="of each rank")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rates", nargs="*", default=["", "1gbit", "200mbit"], help="of the link to the driver")
    asked = parser.parse_args()
    print(f"2 nodes, one rank each, {asked.megabytes} MB per rank, median of {asked.steps - 1} commits\n")
    print("| link of each node to the driver | driver's disk | memory of the nodes |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as hidden, namespaces.nodes(2) as made:
        options = {"launcher": namespaces.launcher_without(hidden), "driver_host": namespaces.DRIVER, "num_cpus": 1}
        trireme.init(engine=f"hosts:{','.join(made.hosts)}", engine_options=options)
        for rate in asked.rates:
            if rate:
                for host in made.hosts:
                    made.limit(host, rate)
            medians = []
            for gigabytes in (0.0, None):
                megabits = float(rate.removesuffix("gbit")) * 1000 if rate.endswith("gbit") else 4000.0
                megabits = float(rate.removesuffix("mbit")) if rate.endswith("mbit") else megabits
                pause_s = 0.5 + asked.megabytes * 2 * 8 / megabits
                name = f"{rate or 'full'}-{gigabytes}"
                DataParallelTrainer(
                    train,
                    train_loop_config={"megabytes": asked.megabytes, "steps": asked.steps, "pause_s": pause_s},
                    scaling_config=ScalingConfig(num_workers=2, trainer_resources={"CPU": 0}),
                    run_config=RunConfig(
                        name=name,
                        storage_path=hidden,
                        checkpoint_config=CheckpointConfig(num_to_keep=1, node_memory_gb=gigabytes),
                    ),
                ).fit()
                medians.append(statistics.median(seconds_to_commit(Path(hidden, name))))
            for host in made.hosts:
                made.unlimit(host)
            print(f"| {rate or 'not limited'} | {medians[0]:.2f} s | {medians[1]:.2f} s |", flush=True)
        trireme.shutdown()


if __name__ == "__main__":
    main()
