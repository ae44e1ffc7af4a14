"""The library's own distributed training, in two processes: own_script.py xgboost|lightgbm starts both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from job import FEATURES, FILES, PARAMS, ROUNDS, Stamps

LIBRARY = sys.argv[1]


def rows_of(rank: int) -> tuple[Any, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = os.environ["BENCH_ROWS"]
    table = pa.concat_tables(pq.read_table(f"{folder}/{number}.parquet") for number in range(rank, FILES, 2))
    return table.select(FEATURES), table.column("label").to_numpy()


def train_xgboost(rank: int, arguments: dict[str, Any]) -> None:
    import xgboost
    from xgboost import collective

    stamps = Stamps(rank)

    class Stamp(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            stamps()
            return False

    features, label = rows_of(rank)
    with collective.CommunicatorContext(**arguments, dmlc_task_id=str(rank)):
        data = xgboost.QuantileDMatrix(features, label, nthread=1)
        xgboost.train(PARAMS["xgboost"], data, ROUNDS, callbacks=[Stamp()])


def train_lightgbm(rank: int, arguments: dict[str, Any]) -> None:
    import lightgbm

    stamps = Stamps(rank)
    features, label = rows_of(rank)
    params = {**PARAMS["lightgbm"], **arguments, "local_listen_port": arguments["ports"][rank], "num_machines": 2}
    del params["ports"]
    data = lightgbm.Dataset(features, label)
    lightgbm.train(params, data, ROUNDS, callbacks=[lambda env: stamps()])


def free_ports() -> list[int]:
    probes = [socket.socket() for _ in range(2)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    if len(sys.argv) > 2:
        (train_xgboost if LIBRARY == "xgboost" else train_lightgbm)(int(sys.argv[2]), json.loads(sys.argv[3]))
        return
    tracker = None
    if LIBRARY == "xgboost":
        from xgboost.tracker import RabitTracker

        tracker = RabitTracker(n_workers=2, host_ip="127.0.0.1", sortby="task")
        tracker.start()
        arguments: dict[str, Any] = tracker.worker_args()
    else:
        ports = free_ports()
        arguments = {"ports": ports, "machines": ",".join(f"127.0.0.1:{port}" for port in ports)}
    script = str(Path(__file__).resolve())
    commands = [[sys.executable, script, LIBRARY, str(rank), json.dumps(arguments)] for rank in range(2)]
    codes = [process.wait() for process in [subprocess.Popen(command) for command in commands]]
    if tracker is not None:
        tracker.wait_for()
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
