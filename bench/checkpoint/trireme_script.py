"""One worker with a state of BENCH_BYTES: the cost of a checkpoint, compared with the minimum of its parts."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

import trireme

FOLDER = Path(os.environ["BENCH_FOLDER"])
REPEAT = int(os.environ["BENCH_REPEAT"])
TENSORS = 64


def make_state() -> dict[str, torch.Tensor]:
    size = int(os.environ["BENCH_BYTES"]) // TENSORS // 4
    return {f"layer_{i}": torch.randn(size) for i in range(TENSORS)}


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def settle() -> None:
    """Flushes the writes of the previous variant, so that they do not slow down the next one."""
    os.sync()
    time.sleep(0.5)


class Forms:
    def __init__(self) -> None:
        self.state = make_state()
        self.warm = {name: torch.zeros_like(tensor) for name, tensor in self.state.items()}
        self.times: dict[str, list[float]] = {}
        self.scratch = FOLDER / "scratch"
        self.report(warm_up=True)  # the buffer is allocated once per training

    def note(self, form: str, value: float) -> None:
        self.times.setdefault(form, []).append(value)

    def memcpy(self) -> None:
        def copy() -> None:
            for name, tensor in self.state.items():
                ctypes.memmove(self.warm[name].data_ptr(), tensor.data_ptr(), tensor.nbytes)

        self.note("memcpy", seconds(copy))

    def report(self, warm_up: bool = False) -> None:
        checkpoint = trireme.Checkpoint.from_dict({"model": self.state})
        mode = trireme.CheckpointUploadMode.ASYNC
        began = time.perf_counter()
        trireme.report({"x": 1}, checkpoint=checkpoint, checkpoint_upload_mode=mode)
        stall = time.perf_counter() - began
        before = getattr(self, "stored", None)
        while (stored := trireme.get_checkpoint()) is None or stored == before:
            time.sleep(0.002)
        self.stored = stored
        if not warm_up:
            self.note("report ASYNC, stall", stall)
            self.note("report ASYNC, durable", time.perf_counter() - began)

    def save_state(self) -> None:
        self.into_scratch("save_state", lambda: trireme.save_state(self.scratch, self.state))

    def dd(self) -> None:
        source = Path(self.stored.path) / "state.safetensors"
        command = ["dd", f"if={source}", f"of={FOLDER}/dd", "bs=1M", "conv=fsync", "status=none"]
        self.into_scratch("dd conv=fsync", lambda: subprocess.run(command, check=True))
        (FOLDER / "dd").unlink()

    def torch_save(self) -> None:
        def save() -> None:
            with open(self.scratch / "state.pt", "wb") as file:
                torch.save(self.state, file)
                file.flush()
                os.fsync(file.fileno())

        self.into_scratch("torch.save + fsync", save)

    def torch_checkpoint(self) -> None:
        self.into_scratch("torch.distributed.checkpoint", lambda: dcp.save(self.state, checkpoint_id=self.scratch))

    def torch_checkpoint_async(self) -> None:
        self.scratch.mkdir()
        began = time.perf_counter()
        future = dcp.async_save(self.state, checkpoint_id=self.scratch)
        self.note("torch.distributed.checkpoint async, stall", time.perf_counter() - began)
        future.result()
        self.note("torch.distributed.checkpoint async, durable", time.perf_counter() - began)
        shutil.rmtree(self.scratch)

    def into_scratch(self, form: str, save: Callable[[], Any]) -> None:
        self.scratch.mkdir()
        self.note(form, seconds(save))
        shutil.rmtree(self.scratch)

    def loading(self) -> None:
        path = Path(self.stored.path) / "state.safetensors"
        saved = FOLDER / "state.pt"
        if not saved.exists():
            torch.save(self.state, saved)
        forms = {
            "read()": path.read_bytes,
            "load_state": lambda: trireme.load_state(self.stored),
            "load_state mmap=False": lambda: trireme.load_state(self.stored, mmap=False),
            "torch.load": lambda: torch.load(saved),
        }
        path.read_bytes()  # fills the page cache
        for name, load in forms.items():
            self.note(name, seconds(load))


def train() -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    # dcp.async_save() requires a process group, even for one process.
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    forms = Forms()
    each = [
        forms.memcpy,
        forms.report,
        forms.dd,
        forms.save_state,
        forms.torch_save,
        forms.torch_checkpoint,
        forms.torch_checkpoint_async,
        forms.loading,
    ]
    for number in range(REPEAT):
        for form in each:
            print(f"{number + 1}/{REPEAT} {form.__name__}", file=sys.stderr, flush=True)
            settle()
            form()
    torch.distributed.destroy_process_group()
    (FOLDER / "times.json").write_text(json.dumps(forms.times))


if __name__ == "__main__":
    trireme.DataParallelTrainer(
        train,
        run_config=trireme.RunConfig(checkpoint_config=trireme.CheckpointConfig(num_to_keep=1)),
    ).fit()
