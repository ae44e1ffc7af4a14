"""`trireme_script.py TASK INPUTS`: the task in the only worker of a run."""

import sys
import time
from pathlib import Path

from inputs import COLUMNS, IMAGE_BATCH, SIDE, link_many
from passes import BATCH, epochs, first_column, tell

import trireme
import trireme.data
from trireme import DataConfig, ScalingConfig
from trireme.torch import TorchTrainer

_RESUMES = 5
_COPIES = 5
_TIMES_BUDGET = 10
_ROW_BYTES = 4 * len(COLUMNS)


def numbers() -> None:
    shard = trireme.get_dataset_shard("train")
    tell(epochs(lambda: shard.iter_torch_batches(batch_size=BATCH), first_column))


def images() -> None:
    shard = trireme.get_dataset_shard("train")
    tell(epochs(lambda: shard.iter_torch_batches(batch_size=IMAGE_BATCH), first_column))


def text(batch_format: str) -> None:
    shard = trireme.get_dataset_shard("train")
    rows = len if batch_format == "pyarrow" else first_column
    tell(epochs(lambda: shard.iter_batches(batch_size=BATCH, batch_format=batch_format), rows))


def resume() -> None:
    """The time from load_state(), at 90 % of an epoch, to the first batch."""
    shard = trireme.get_dataset_shard("train")
    last = int(shard.count() * 0.9) // BATCH
    state = None
    for number, _ in enumerate(shard.iter_torch_batches(batch_size=BATCH)):
        if number == last:
            state = shard.state()
            break
    seconds = []
    for _ in range(_RESUMES):
        began = time.perf_counter()
        shard.load_state(state)
        for _ in shard.iter_torch_batches(batch_size=BATCH):
            break
        seconds.append(time.perf_counter() - began)
    tell({"resume_s": seconds})


def budget() -> None:
    """The memory growth of the process in a pass, after a warm-up pass has loaded all code."""
    for _ in trireme.get_dataset_shard("warm").iter_torch_batches(batch_size=BATCH):
        pass
    shard = trireme.get_dataset_shard("train")
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    rows = sum(first_column(batch) for batch in shard.iter_torch_batches(batch_size=BATCH))
    grown = (kilobytes("VmHWM") - before) / 1024
    budget_mb = rows * _ROW_BYTES / _TIMES_BUDGET / 2**20
    tell({"rows": rows, "grown_mb": grown, "budget_mb": budget_mb, "before_mb": before / 1024, "held": shard.stats()})


def kilobytes(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


def main(task: str, inputs: Path) -> None:
    config = None
    if task in ("numbers", "resume"):
        datasets = {"train": trireme.data.read_parquet(str(inputs / "numbers"))}
    elif task == "shuffled":
        datasets = {"train": trireme.data.read_parquet(str(inputs / "numbers")).random_shuffle(seed=1)}
    elif task == "images":
        datasets = {"train": trireme.data.read_images(str(inputs / "images"), size=(SIDE, SIDE), mode="RGB")}
    elif task.startswith("text"):
        datasets = {"train": trireme.data.read_text(str(inputs / "text"))}
    else:
        datasets = {"train": trireme.data.read_parquet(str(link_many(inputs, _COPIES)))}
        datasets["warm"] = datasets["train"].limit(2 * BATCH)
        config = DataConfig(memory_budget=datasets["train"].count() * _ROW_BYTES // _TIMES_BUDGET)
    functions = {
        "numbers": numbers,
        "shuffled": numbers,
        "resume": resume,
        "images": images,
        "text": lambda: text("pyarrow"),
        "text as numpy": lambda: text("numpy"),
        "budget": budget,
    }
    TorchTrainer(
        functions[task], datasets=datasets, dataset_config=config, scaling_config=ScalingConfig(num_workers=1)
    ).fit()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
