"""`ray_script.py TASK INPUTS`: the task with Ray Data; the driver reads the batches."""

import sys
from pathlib import Path

import ray
import ray.data
from passes import BATCH, epochs, first_column, tell


def main(task: str, inputs: Path) -> None:
    if task.startswith("text"):
        dataset = ray.data.read_text(str(inputs / "text"))
        batch_format = "pyarrow" if task == "text" else "numpy"
        rows = len if batch_format == "pyarrow" else first_column
        tell(epochs(lambda: dataset.iter_batches(batch_size=BATCH, batch_format=batch_format), rows))
        return
    dataset = ray.data.read_parquet(str(inputs / "numbers"))
    if task == "shuffled":
        dataset = dataset.random_shuffle()
    tell(epochs(lambda: dataset.iter_torch_batches(batch_size=BATCH), first_column))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    ray.data.DataContext.get_current().enable_progress_bars = False
    main(sys.argv[1], Path(sys.argv[2]))
    ray.shutdown()
