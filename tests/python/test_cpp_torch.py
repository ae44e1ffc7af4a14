"""trireme::torch: gradients in C++, and trainings that switch between C++ and Python."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trireme
from cpp_programs import BUILD, EXAMPLES, ROOT, checked, metrics, result_of, run
from runs import events

torch = pytest.importorskip("torch")

PROGRAM = BUILD / "tests/torch_program"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` with libtorch first"),
]


def test_tensors_devices_and_the_store() -> None:
    assert checked(PROGRAM, "store").endswith("the workers have met\n")


@pytest.mark.parametrize(
    ("what", "workers"),
    [("gradients", 3), ("gradients", 1), ("accumulation", 2), ("buffers", 2), ("unused", 2), ("two_backwards", 2)],
)
def test_data_parallel(what: str, workers: int) -> None:
    checked(PROGRAM, "models", what, workers, what)


@pytest.mark.parametrize(
    ("kind", "rank", "message"),
    [
        ("empty", None, "EmptyImpl has no parameters"),
        ("frozen", None, "none of the 4 parameters of .*NetImpl requires a gradient"),
        ("twice", None, 'the module is already prepared .parameter "fc1.weight"'),
        ("shape", 1, r'"fc1.weight" Float\[16, 8\] on rank 0 and "fc1.weight" Float\[17, 8\] on rank 1'),
        ("fewer", 1, r'"0.weight" Float\[16, 8\] on rank 0 and "weight" Float\[16, 8\] on rank 1'),
        (
            "unused",
            None,
            'but "right.weight", "right.bias", "nobody.weight", "nobody.bias" got none: .*find_unused_parameters',
        ),
        ("around", None, r"call model.forward\(x\) or model\(x\), not model->forward\(x\)"),
    ],
)
def test_what_cannot_be_prepared(kind: str, rank: int | None, message: str) -> None:
    done = run(PROGRAM, "models", "bad", 2, kind, "kind", kind)
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(rf"FAILED rank {'[01]' if rank is None else rank}: .*{message}", done.stdout), done.stdout


def test_outside_of_a_worker() -> None:
    assert checked(PROGRAM, "models", "outside").splitlines() == ["REFUSED prepare_model", "REFUSED Autocast"]


@pytest.mark.parametrize(("what", "workers"), [("autocast", 1), ("scaler", 2)])
def test_precision(what: str, workers: int) -> None:
    checked(PROGRAM, "training", what, workers, what)


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """The model of the program."""

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
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.2, max_iter=3, history_size=4),
    "LBFGS search": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=2, max_eval=30, line_search_fn="strong_wolfe"),
}

SCHEDULERS = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, "min", 0.3, 1, 0.2, "rel", 1),
}

TYPES = {"float": torch.float32, "bfloat16": torch.bfloat16, "half": torch.float16}


def train_in_python(
    state: dict[str, Any] | None,
    kind: str,
    end: int,
    scheduler_kind: str = "step",
    precision: str = "float",
    clip: bool = False,
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The same training in one process, with the rows of all workers."""
    torch.manual_seed(7)
    net = Net()
    optimizer = OPTIMIZERS[kind](net.parameters())
    scheduler = SCHEDULERS[scheduler_kind](optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3, enabled=precision == "half")
    step = 0
    if state is not None:
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"]["cpu"])
        step = state["step"]
    told: dict[str, list[Any]] = {name: [] for name in ("losses", "drawn", "norms", "scales", "rates")}
    for at in range(step, end):
        x = torch.sin(torch.arange(12 * 8).reshape(12, 8) * 0.37 + at)

        def compute(x: Any = x) -> Any:
            with torch.autocast("cpu", TYPES[precision], enabled=precision != "float"):
                loss = torch.nn.functional.mse_loss(net(x), torch.cos(x.sum(1, keepdim=True)))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            return loss

        loss = compute()
        told["losses"].append(loss.item())
        told["drawn"].append(torch.rand(1).item())
        if kind.startswith("LBFGS"):
            optimizer.step(compute)
        else:
            scaler.unscale_(optimizer)
            if clip:
                told["norms"].append(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05).item())
            scaler.step(optimizer)
            scaler.update()
        scheduler.step(*[loss.item()] * (scheduler_kind == "plateau"))
        told["scales"].append(scaler.get_scale())
        told["rates"].append(optimizer.param_groups[0]["lr"])
    made = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    random = {"rng": {"cpu": torch.get_rng_state()}}
    return {**made, **random, "scaler": scaler.state_dict(), "step": end}, told


def train_in_cpp(name: str, kind: str, end: int, *options: object, workers: int = 2) -> trireme.Result:
    checked(PROGRAM, "training", "train", workers, name, "optimizer", kind, "end", end, *options)
    return result_of(name)


@pytest.mark.parametrize(("kind", "scheduler"), [*[(kind, "step") for kind in OPTIMIZERS], ("SGD", "plateau")])
def test_cpp_to_python_to_cpp(kind: str, scheduler: str, tmp_path: Path) -> None:
    options = ("scheduler", scheduler)
    whole = metrics(train_in_cpp("whole", kind, 12, *options))
    first = train_in_cpp("first", kind, 4, *options)
    assert first.checkpoint is not None
    state = trireme.load_state(first.checkpoint.path)
    if scheduler == "step":
        check_layout(state, kind)
    # The two line searches differ: there Python only loads and saves.
    second, told = train_in_python(state, kind, 4 if kind == "LBFGS search" else 8, scheduler)
    trireme.save_state(tmp_path / "python", second)
    third = metrics(train_in_cpp("third", kind, 12, *options, "from", tmp_path / "python"))
    for what in ("losses", "rates"):
        assert metrics(first)[what] + told[what] + third[what] == pytest.approx(whole[what], rel=1e-4), what
    assert metrics(first)["drawn"] + told["drawn"] + third["drawn"] == whole["drawn"], "the random numbers"
    assert whole["losses"][-1] != pytest.approx(whole["losses"][4], rel=1e-2), "it does not train"
    assert len(set(whole["rates"])) > 2, "the rate does not fall"


def test_plateau_has_all_that_python_has() -> None:
    made = train_in_cpp("plateau", "SGD", 0, "scheduler", "plateau").checkpoint
    assert made is not None
    same, _ = train_in_python(None, "SGD", 0, "plateau")
    theirs = {name: same["scheduler"][name] for name in same["scheduler"] if name != "mode_worse"}  # follows from mode
    del theirs["_last_lr"], theirs["default_min_lr"]  # belongs to the optimizer; the default for min_lrs
    assert trireme.load_state(made.path)["scheduler"] == theirs


# One worker if the sums must be added in the same order.
@pytest.mark.parametrize(("precision", "workers"), [("float", 2), ("bfloat16", 1), ("half", 1)])
def test_precision_and_clipping_are_those_of_python(precision: str, workers: int, tmp_path: Path) -> None:
    begin, _ = train_in_python(None, "SGD", 0, "plateau", precision)
    trireme.save_state(tmp_path / "python", begin)
    _, told = train_in_python(begin, "SGD", 9, "plateau", precision, clip=True)
    options = ("scheduler", "plateau", "precision", precision, "clip", "true", "from", tmp_path / "python")
    there = metrics(train_in_cpp("precision", "SGD", 9, *options, workers=workers))
    assert there["losses"] == pytest.approx(told["losses"], rel=1e-4)
    assert there["norms"] == pytest.approx(told["norms"], rel=1e-4, nan_ok=True)
    assert there["scales"] == told["scales"]
    assert max(norm for norm in told["norms"] if norm < 1e9) > 0.05, "nothing is clipped"
    if precision == "float":
        return
    _, full = train_in_python({**begin, "scaler": {}}, "SGD", 9, "plateau", clip=True)
    assert there["losses"] != pytest.approx(full["losses"], rel=1e-6), "nothing is rounded"
    assert (len(set(there["scales"])) > 2) == (precision == "half"), "the scale has moved"


def check_layout(state: dict[str, Any], kind: str) -> None:
    """The state that C++ stored has the keys, types and shapes of Python's."""
    same, _ = train_in_python(None, kind, 4)

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
    for each in same["optimizer"]["state"].values():
        each.pop("al", None)  # recomputed in every step
    assert shape(state["model"]) == shape(dict(same["model"]))
    assert shape(state["optimizer"]) == shape(same["optimizer"])


def test_state_of_a_wrapped_module(tmp_path: Path) -> None:
    state, _ = train_in_python(None, "SGD", 4)
    wrapped = {f"module.{name}": tensor for name, tensor in state["model"].items()}
    trireme.save_state(tmp_path / "python", {**state, "model": wrapped})
    _, told = train_in_python(state, "SGD", 6)  # continues with the optimizer's own tensors: after saving
    there = metrics(train_in_cpp("wrapped", "SGD", 6, "from", tmp_path / "python"))
    assert there["losses"] == pytest.approx(told["losses"], rel=1e-4)


def test_state_that_does_not_fit(tmp_path: Path) -> None:
    state, _ = train_in_python(None, "SGD", 2)

    def refused(name: str, kind: str = "SGD", **changes: Any) -> str:
        trireme.save_state(tmp_path / name, {**state, **changes})
        done = run(PROGRAM, "training", "train", 1, name, "optimizer", kind, "end", 3, "from", tmp_path / name)
        assert done.returncode == 3, done.stdout + done.stderr
        return next(line for line in done.stdout.splitlines() if line.startswith("FAILED"))

    model = dict(state["model"])
    model["fc3.weight"] = model.pop("fc1.bias")
    model["fc1.weight"] = model["fc1.weight"].double()
    model["fc2.weight"] = model["fc2.weight"].reshape(16)
    message = refused("model", model=model)
    assert "the checkpoint lacks fc1.bias" in message
    assert "the module lacks fc3.weight" in message
    assert "fc1.weight is F64[16, 8] in the checkpoint and F32[16, 8] in the module" in message
    assert "fc2.weight is F32[16] in the checkpoint and F32[1, 16] in the module" in message

    assert 'optimizer/param_groups/0 has no "betas"' in refused("kind", kind="AdamW")
    adam, _ = train_in_python(None, "Adam", 2)
    message = refused("decoupled", kind="AdamW", optimizer=adam["optimizer"])
    assert "decoupled_weight_decay is false in the checkpoint, which libtorch's AdamW does not support" in message
    adam["optimizer"]["state"][2]["exp_avg"] = torch.zeros(3)
    message = refused("momentum", kind="Adam", optimizer=adam["optimizer"])
    assert "optimizer/state/2/exp_avg is F32[3] in the checkpoint; the parameter has the shape [1, 16]" in message
    assert 'has no "model"' in refused("nothing", model=3)
    assert 'optimizer/param_groups/0 has no "max_iter"' in refused("lbfgs", kind="LBFGS")
    lbfgs, _ = train_in_python(None, "LBFGS", 2)
    lbfgs["optimizer"]["state"][0]["d"] = torch.zeros(3)
    message = refused("direction", kind="LBFGS", optimizer=lbfgs["optimizer"])
    assert "optimizer/state/0/d is F32[3] in the checkpoint; the parameters have 161 numbers" in message


@pytest.mark.parametrize("broken", [False, True])
def test_example_digits(broken: bool, results: Path) -> None:
    out = checked(EXAMPLES / "example_torch_digits", *["--break"] * broken)
    assert f"after {2 if broken else 1} attempt" in out
    result = trireme.Result.from_path(results / "torch_digits")
    assert metrics(result)["epoch"] == 4
    assert metrics(result)["accuracy"] > 0.95
    assert result.checkpoint is not None
    state = trireme.load_state(result.checkpoint.path)
    assert state["model"]["norm.num_batches_tracked"] == 5 * 20
    epochs = [row["metrics"]["epoch"] for row in result.metrics_history(0)]
    assert epochs == list(range(5))


def test_example_resume() -> None:
    whole, killed = (checked(EXAMPLES / "example_torch_resume", *options) for options in ((), ("--kill",)))
    assert "resuming after step 20" in killed
    assert "after 2 attempts" in killed
    loss = re.compile(r"loss (\S+) after")
    assert loss.findall(whole) == loss.findall(killed) != []


@pytest.mark.parametrize("options", [(), ("--half",)])
def test_example_precision(options: tuple[str, ...]) -> None:
    out = checked(EXAMPLES / "example_torch_precision", *options)
    assert float(out.split("accuracy ")[-1]) > 0.95


def test_example_accumulation() -> None:
    out = checked(EXAMPLES / "example_torch_accumulation")
    numbers = re.search(r"loss (\S+) -> (\S+)", out)
    assert numbers is not None, out
    assert float(numbers[2]) < float(numbers[1]) / 10


def test_the_example_that_resumes_from_python(tmp_path: Path, results: Path) -> None:
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


@pytest.mark.parametrize(("fault", "cause"), [("kill", "signal"), ("throw", "exception"), ("hang", "hang")])
def test_collectives_are_aborted_when_a_rank_is_lost(results: Path, fault: str, cause: str) -> None:
    assert checked(PROGRAM, "cancel", "lost", fault, "cleans").endswith("RETURNED 2\n"), (
        "the second call in this process"
    )
    (failure,) = events(results / "run", "worker_failed")
    assert (failure["rank"], failure["cause"]) == (1, cause)
    (restarted,) = events(results / "run", "restarted")
    assert (restarted["kind"], restarted["kept"], restarted["replaced"]) == ("warm", 1, 1)


def test_a_process_that_cannot_be_cleaned_up_is_replaced(results: Path) -> None:
    assert checked(PROGRAM, "cancel", "lost", "kill", "throws").endswith("RETURNED 1\n"), (
        "the first call in a new process"
    )
    (restarted,) = events(results / "run", "restarted")
    assert (restarted["kept"], restarted["replaced"]) == (0, 2)
    log = (results / "run/logs/attempt_0/rank_0.log").read_text()
    assert "this process is replaced for the next attempt: the device is unusable" in log


def test_collectives_have_a_timeout() -> None:
    assert re.search(r"RETURNED .*Timed out waiting 500ms", checked(PROGRAM, "cancel", "timeout"))


def test_the_rank_that_does_not_join_a_collective_is_blamed(results: Path) -> None:
    assert run(PROGRAM, "cancel", "away").returncode != 0
    blamed, waited = events(results / "run", "worker_failed")
    assert (blamed["rank"], blamed["cause"], blamed["collateral"]) == (1, "hang", False)
    assert (waited["rank"], waited["collateral"]) == (0, True)
    assert "all stacks: " in blamed["message"]
