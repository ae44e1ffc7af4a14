"""trireme::torch: gradients in C++, and trainings that go from one language to the other and back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trireme

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TRIREME_BUILD_DIR", ROOT / "build/release"))
PROGRAM = BUILD / "tests/torch_ddp_program"
EXAMPLES = BUILD / "examples/cpp"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` with libtorch first"),
]


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, cwd=BUILD
    )


def checked(program: Path, *arguments: object) -> str:
    done = run(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("what", "workers"),
    [("gradients", 3), ("gradients", 1), ("accumulation", 2), ("buffers", 2), ("unused", 2), ("two_backwards", 2)],
)
def test_data_parallel(what: str, workers: int) -> None:
    checked(PROGRAM, what, workers, what)


@pytest.mark.parametrize(
    ("kind", "rank", "message"),
    [
        ("empty", None, "EmptyImpl has no parameters"),
        ("frozen", None, "none of the 4 parameters of .*NetImpl requires a gradient"),
        ("twice", None, 'the module is prepared already .parameter "fc1.weight"'),
        ("shape", 1, r'"fc1.weight" Float\[16, 8\] on rank 0 and "fc1.weight" Float\[17, 8\] on rank 1'),
        ("fewer", 1, r'"0.weight" Float\[16, 8\] on rank 0 and "weight" Float\[16, 8\] on rank 1'),
        (
            "unused",
            None,
            'and "right.weight", "right.bias", "nobody.weight", "nobody.bias" none: .*find_unused_parameters',
        ),
        ("around", None, r"call model.forward\(x\) or model\(x\), not model->forward\(x\)"),
    ],
)
def test_what_cannot_be_prepared(kind: str, rank: int | None, message: str) -> None:
    done = run(PROGRAM, "bad", 2, kind, "kind", kind)
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(rf"FAILED rank {'[01]' if rank is None else rank}: .*{message}", done.stdout), done.stdout


def test_outside_of_a_worker() -> None:
    assert "REFUSED prepare_model() cannot be used outside of a training function" in checked(PROGRAM, "outside")


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """That of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(8, 16)
        self.fc2 = torch.nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        return self.fc2(torch.tanh(self.fc1(x)))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.01),
}


def train_in_python(
    state: dict[str, Any] | None, kind: str, end: int
) -> tuple[dict[str, Any], list[float], list[float]]:
    """What the workers of the program do together: the rows of all of them at once."""
    torch.manual_seed(7)
    net = Net()
    optimizer = OPTIMIZERS[kind](net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    step = 0
    if state is not None:
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"]["cpu"])
        step = state["step"]
    losses, drawn = [], []
    for at in range(step, end):
        x = torch.sin(torch.arange(12 * 8).reshape(12, 8) * 0.37 + at)
        loss = torch.nn.functional.mse_loss(net(x), torch.cos(x.sum(1, keepdim=True)))
        losses.append(loss.item())
        drawn.append(torch.rand(1).item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    made = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    return {**made, "rng": {"cpu": torch.get_rng_state()}, "step": end}, losses, drawn


def train_in_cpp(name: str, kind: str, end: int, *options: object) -> trireme.Result:
    checked(PROGRAM, "train", 2, name, "optimizer", kind, "end", end, *options)
    return trireme.Result.from_path(Path(os.environ["TRIREME_RESULTS"]) / name)


def metrics(result: trireme.Result) -> dict[str, Any]:
    assert result.metrics is not None
    return result.metrics


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
def test_cpp_to_python_to_cpp(kind: str, tmp_path: Path) -> None:
    whole = metrics(train_in_cpp("whole", kind, 12))
    first = train_in_cpp("first", kind, 4)
    assert first.checkpoint is not None
    state = trireme.load_state(first.checkpoint.path)
    second, losses, drawn = train_in_python(state, kind, 8)
    trireme.save_state(tmp_path / "python", second)
    third = metrics(train_in_cpp("third", kind, 12, "from", tmp_path / "python"))
    assert metrics(first)["losses"] + losses + third["losses"] == pytest.approx(whole["losses"], rel=1e-4)
    assert metrics(first)["drawn"] + drawn + third["drawn"] == whole["drawn"], "the random numbers"
    assert whole["losses"][-1] != pytest.approx(whole["losses"][4], rel=1e-2), "it does not train"


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
def test_layout_is_that_of_python(kind: str) -> None:
    made = train_in_cpp("layout", kind, 4).checkpoint
    assert made is not None
    state = trireme.load_state(made.path)
    same, _, _ = train_in_python(None, kind, 4)

    def shape(value: Any) -> Any:
        """Keys, types, dtypes and shapes."""
        if isinstance(value, torch.Tensor):
            return value.dtype, tuple(value.shape)
        if isinstance(value, dict):
            return {key: shape(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value), [shape(item) for item in value]
        return "number" if isinstance(value, int | float) and not isinstance(value, bool) else value

    for group in same["optimizer"]["param_groups"]:
        group.pop("initial_lr")  # the scheduler's
    assert shape(state["model"]) == shape(dict(same["model"]))
    assert shape(state["optimizer"]) == shape(same["optimizer"])


def test_state_of_a_wrapped_module(tmp_path: Path) -> None:
    state, _, _ = train_in_python(None, "SGD", 4)
    wrapped = {f"module.{name}": tensor for name, tensor in state["model"].items()}
    trireme.save_state(tmp_path / "python", {**state, "model": wrapped})
    _, losses, _ = train_in_python(state, "SGD", 6)  # goes on with the optimizer's own tensors: after the saving
    there = metrics(train_in_cpp("wrapped", "SGD", 6, "from", tmp_path / "python"))
    assert there["losses"] == pytest.approx(losses, rel=1e-4)


def test_state_that_does_not_fit(tmp_path: Path) -> None:
    state, _, _ = train_in_python(None, "SGD", 2)

    def refused(name: str, kind: str = "SGD", **changes: Any) -> str:
        trireme.save_state(tmp_path / name, {**state, **changes})
        done = run(PROGRAM, "train", 1, name, "optimizer", kind, "end", 3, "from", tmp_path / name)
        assert done.returncode == 3, done.stdout + done.stderr
        return next(line for line in done.stdout.splitlines() if line.startswith("FAILED"))

    model = dict(state["model"])
    model["fc3.weight"] = model.pop("fc1.bias")
    model["fc1.weight"] = model["fc1.weight"].double()
    model["fc2.weight"] = model["fc2.weight"].reshape(16)
    message = refused("model", model=model)
    assert "the checkpoint lacks fc1.bias" in message
    assert "it has, and the module lacks, fc3.weight" in message
    assert "fc1.weight is F64[16, 8] in the checkpoint and F32[16, 8] in the module" in message
    assert "fc2.weight is F32[16] in the checkpoint and F32[1, 16] in the module" in message

    assert 'optimizer/param_groups/0 has no "betas"' in refused("kind", kind="AdamW")
    adam, _, _ = train_in_python(None, "Adam", 2)
    message = refused("decoupled", kind="AdamW", optimizer=adam["optimizer"])
    assert "decoupled_weight_decay is false in the checkpoint, which libtorch's AdamW cannot do" in message
    adam["optimizer"]["state"][2]["exp_avg"] = torch.zeros(3)
    message = refused("momentum", kind="Adam", optimizer=adam["optimizer"])
    assert "optimizer/state/2/exp_avg is F32[3] in the checkpoint; the parameter has the shape [1, 16]" in message
    assert 'has no "model"' in refused("nothing", model=3)


def batches_of(name: str) -> dict[int, dict[int, list[list[int]]]]:
    """By epoch and rank."""
    result = trireme.Result.from_path(Path(os.environ["TRIREME_RESULTS"]) / name)
    found: dict[int, dict[int, list[list[int]]]] = {}
    for row in result.metrics_history():
        found.setdefault(row["metrics"]["epoch"], {})[row["rank"]] = row["metrics"]["batches"]
    return found


def in_python(size: int, ranks: int, rank: int, epoch: int, batch: int, drop_last: bool, shuffle: bool) -> Any:
    sampler = torch.utils.data.DistributedSampler(range(size), ranks, rank, shuffle=shuffle, seed=3, drop_last=False)
    sampler.set_epoch(epoch)
    indices = list(sampler)
    batches = [indices[i : i + batch] for i in range(0, len(indices), batch)]
    whole = size // (batch * ranks)
    return batches[:whole] if drop_last else batches


@pytest.mark.parametrize(
    ("size", "drop_last", "shuffle", "threads"),
    [(24, False, True, 0), (23, False, True, 2), (23, True, True, 0), (10, False, False, 0)],
)
def test_order_is_that_of_python(size: int, drop_last: bool, shuffle: bool, threads: int) -> None:
    options = {"drop_last": str(drop_last).lower(), "shuffle": str(shuffle).lower(), "threads": threads}
    checked(PROGRAM, "data", 3, "data", "size", size, "batch", 2, *[word for item in options.items() for word in item])
    seen = batches_of("data")
    for epoch in range(2):
        for rank in range(3):
            assert seen[epoch][rank] == in_python(size, 3, rank, epoch, 2, drop_last, shuffle)
    assert (seen[0] != seen[1]) == shuffle


@pytest.mark.parametrize("threads", [0, 2])
def test_position_goes_on_with_any_number_of_ranks(threads: int) -> None:
    data = ("size", 24, "batch", 2, "threads", threads)
    out = checked(PROGRAM, "data", 2, "left", *data, "stop", 3)
    checkpoint = re.search(r"^CHECKPOINT (.*)$", out, re.MULTILINE)
    assert checkpoint is not None, out
    for ranks in (2, 3):
        checked(PROGRAM, "data", ranks, f"on_{ranks}", *data, "from", checkpoint[1])
        done = [i for batches in batches_of("left")[1].values() for batch in batches for i in batch]
        assert len(done) == 12
        rest = batches_of(f"on_{ranks}")
        assert list(rest) == [1], "the first epoch is over"
        assert sorted(done + [i for batches in rest[1].values() for batch in batches for i in batch]) == list(range(24))
        if ranks == 2:
            assert rest[1][1] == in_python(24, 2, 1, 1, 2, False, True)[3:]


def test_python_goes_on_with_the_position() -> None:
    out = checked(PROGRAM, "data", 2, "left", "size", 24, "batch", 2, "stop", 3)
    checkpoint = re.search(r"^CHECKPOINT (.*)$", out, re.MULTILINE)
    assert checkpoint is not None, out
    position = trireme.load_state(checkpoint[1])["data"]
    assert position == {"epoch": 1, "samples": 12, "seed": 3, "size": 24}

    def train() -> list[int]:
        from torch.utils.data import DataLoader

        from trireme.torch import prepare_data_loader

        loader = prepare_data_loader(DataLoader(range(24), batch_size=2, shuffle=True))
        loader.load_state_dict(position)
        return [i for batch in loader for i in batch.tolist()]

    rest = trireme.DataParallelTrainer(train).fit().return_value
    assert rest == [i for batch in in_python(24, 1, 0, 1, 2, False, True) for i in batch][12:]


def test_position_in_another_dataset(tmp_path: Path) -> None:
    trireme.save_state(tmp_path / "data", {"data": {"epoch": 1, "samples": 12, "seed": 3, "size": 25}})
    done = run(PROGRAM, "data", 1, "other", "size", 24, "batch", 2, "from", tmp_path / "data")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "in a dataset of 25 samples, and this one has 24" in done.stdout


def test_epoch_that_is_left() -> None:
    checked(PROGRAM, "leave", 2, "leave")


def test_loader_without_a_batch() -> None:
    done = run(PROGRAM, "data", 2, "small", "size", 3, "batch", 2, "drop_last", "true")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "batch_size 2 on 2 ranks takes more than the 3 samples there are" in done.stdout


@pytest.mark.parametrize("broken", [False, True])
def test_example_digits(broken: bool, results: Path) -> None:
    out = checked(EXAMPLES / "example_torch_digits", *["--break"] * broken)
    assert f"after {2 if broken else 1} attempt" in out
    result = trireme.Result.from_path(results / "torch_digits")
    assert metrics(result)["epoch"] == 4
    assert metrics(result)["accuracy"] > 0.95
    assert result.checkpoint is not None
    state = trireme.load_state(result.checkpoint.path)
    assert state["data"]["epoch"] == 5
    assert state["model"]["norm.num_batches_tracked"] == 5 * 20
    epochs = [row["metrics"]["epoch"] for row in result.metrics_history(0)]
    assert epochs == list(range(5))


def test_example_accumulation() -> None:
    out = checked(EXAMPLES / "example_torch_accumulation")
    numbers = re.search(r"loss (\S+) -> (\S+)", out)
    assert numbers is not None, out
    assert float(numbers[2]) < float(numbers[1]) / 10


def test_example_that_goes_on_from_python(tmp_path: Path, results: Path) -> None:
    script = ROOT / "examples/python/state.py"
    there = subprocess.run([sys.executable, script, tmp_path / "state"], capture_output=True, text=True, check=True)
    expected = re.search(r"without the detour (\S+)", there.stdout)
    assert expected is not None, there.stdout
    checked(EXAMPLES / "example_torch_from_python", tmp_path / "state")
    result = trireme.Result.from_path(results / "torch_from_python")
    assert metrics(result)["loss"] == pytest.approx(float(expected[1]), rel=1e-6)
    assert result.checkpoint is not None
    back = trireme.load_state(result.checkpoint.path)
    assert back["epoch"] == 6
    model = torch.nn.Linear(4, 2)
    model.load_state_dict(back["model"])
    torch.optim.AdamW(model.parameters()).load_state_dict(back["optimizer"])
