"""JaxTrainer with two real workers on CPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pyarrow as pa
import pytest
from jax.distributed import initialize as imported_by_name
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import trireme
from trireme import ConfigError, FailureConfig, RunConfig, ScalingConfig
from trireme.jax import JaxConfig, JaxTrainer, iter_batches, load_sharded, save_sharded
from trireme.jax._compiled_folder import compiled_folder

TWO = ScalingConfig(num_workers=2)
ROWS, FEATURES, BATCH = 240, 8, 12  # 20 steps an epoch


def dataset() -> Any:
    inputs = np.random.default_rng(0).standard_normal((ROWS, FEATURES)).astype("float32")
    table = {"x": pa.FixedSizeListArray.from_arrays(inputs.reshape(-1), FEATURES), "y": inputs.sum(1)}
    return trireme.data.from_arrow(pa.table(table)).repartition(4).random_shuffle(seed=1)


def layout() -> tuple[NamedSharding, NamedSharding]:
    """Weights are divided among the devices, so that every rank has only a part of the state."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


def fitted(config: dict[str, Any]) -> dict[str, Any]:
    """A linear model, with Adam; a checkpoint after every fifth step."""
    divided, whole = layout()
    rank, optimizer = jax.process_index(), optax.adam(0.05)

    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        weights, moments = state
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch["x"] @ w - batch["y"]) ** 2))(weights)
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(weights, updates), moments), loss

    weights = jax.device_put(np.zeros(FEATURES, "float32"), divided)
    state = {"train": (weights, optimizer.init(weights)), "step": 0, "key": jax.random.key(0)}
    checkpoint = trireme.get_checkpoint()
    if checkpoint is not None:
        state = load_sharded(checkpoint, state)
    began_at, pids, loss = state["step"], [os.getpid()], None
    shard = trireme.get_dataset_shard("train")
    while state["step"] < config["steps"]:
        for batch in iter_batches(shard, divided, global_batch_size=BATCH):
            state["train"], loss = step(state["train"], batch)
            state["step"] += 1
            fault(config, state["step"])
            notified = config.get("notify") and multihost_utils.reached_preemption_sync_point(state["step"])
            if state["step"] % 5 == 0 or notified:
                trireme.report({"loss": float(loss), "step": state["step"]}, checkpoint=save_sharded(state))
            if state["step"] == config["steps"]:
                break
    found = multihost_utils.process_allgather(state["train"][0], tiled=True)
    copies = multihost_utils.process_allgather(found)
    jax.block_until_ready(whole)
    same = bool((copies == copies[0]).all())
    return {
        "weights": found.tolist(),
        "same": same,
        "loss": float(loss),
        "began_at": began_at,
        "rank": rank,
        "devices": jax.device_count(),
        "pids": pids,
    }


def fault(config: dict[str, Any], step: int) -> None:
    """Kills or notifies one rank in the middle of the first attempt."""
    rank, sent = config.get("fault", (None, None))
    if rank == jax.process_index() and step == 13 and trireme.get_context()._attempt == 0:
        os.kill(os.getpid(), sent)


def train(workers: int = 2, name: str | None = None, steps: int = 30, **config: Any) -> trireme.Result:
    return JaxTrainer(
        fitted,
        train_loop_config={"steps": steps, **config},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name, failure_config=FailureConfig(max_failures=1, preemption_grace_s=300)),
        datasets={"train": dataset()},
    ).fit()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> trireme.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIREME_RESULTS", str(tmp_path_factory.mktemp("undisturbed")))
        return train(name="undisturbed")


def events(result: trireme.Result, kind: str) -> list[dict[str, Any]]:
    log = Path(result.path, "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, log) if event["event"] == kind]


def test_two_workers_equal_one(undisturbed: trireme.Result) -> None:
    two, one = undisturbed.return_value, train(workers=1).return_value
    assert (two["devices"], one["devices"]) == (2, 1)
    assert two["same"]
    np.testing.assert_allclose(two["weights"], one["weights"], rtol=1e-4)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_changes_nothing(undisturbed: trireme.Result, rank: int) -> None:
    """Rank 0 has JAX's coordinator: without it, JAX ends the other processes."""
    killed = train(fault=(rank, signal.SIGKILL))
    assert killed.return_value["began_at"] == 10
    assert killed.return_value["weights"] == undisturbed.return_value["weights"]
    assert killed.metrics["loss"] == undisturbed.metrics["loss"]
    failed, *others = events(killed, "worker_failed")
    assert (failed["rank"], failed["cause"]) == (rank, "signal") and "SIGKILL" in failed["message"]
    assert all(other["collateral"] for other in others)


def test_a_preemption_notice_is_answered_in_the_middle_of_an_epoch(undisturbed: trireme.Result) -> None:
    preempted = train(fault=(1, signal.SIGTERM), notify=True)
    assert preempted.return_value["weights"] == undisturbed.return_value["weights"]
    assert preempted.return_value["began_at"] >= 13
    (failed,) = events(preempted, "attempt_failed")
    assert failed["budget"] == "max_preemption_failures"


def test_a_checkpoint_of_two_workers_is_loaded_by_one_and_by_orbax(undisturbed: trireme.Result) -> None:
    stored = undisturbed.checkpoint
    shards = sorted(each.name for each in Path(stored.path, "state", "train.0").iterdir())
    assert shards == [".zarray", "0", "1"], "each rank has stored its half"
    folder, plain = os.path.join(stored.path, "state"), ocp.PyTreeCheckpointer()
    kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), plain.metadata(folder).item_metadata.tree)
    found = plain.restore(folder, restore_args=kinds)
    np.testing.assert_array_equal(found["train"][0], undisturbed.return_value["weights"])

    def load() -> Any:
        divided, _ = layout()
        weights = jax.ShapeDtypeStruct((FEATURES,), jnp.float32, sharding=divided)
        moments = jax.eval_shape(optax.adam(0.05).init, weights)
        state = {"train": (weights, moments), "step": 0, "key": jax.random.key(5)}
        found = load_sharded(trireme.get_checkpoint(), state)
        with pytest.raises(ValueError, match=r"(?s)does not fit.*step: stored a value.*unexpected: train/1/0/mu"):
            load_sharded(trireme.get_checkpoint(), {"step": np.zeros(3), "train": (weights,)})
        with pytest.raises(FileNotFoundError, match="has no folder 'state'"):
            load_sharded(os.getcwd(), state)
        key = jax.random.key_data(found["key"]).tolist()
        return np.asarray(found["train"][0]).tolist(), found["train"][0].sharding == divided, found["step"], key

    one = JaxTrainer(load, resume_from_checkpoint=stored).fit()
    assert one.return_value == (undisturbed.return_value["weights"], True, 30, [0, 0])


def test_devices_ranks_and_a_second_fit() -> None:
    def seen() -> Any:
        ranks = multihost_utils.process_allgather(np.array([jax.process_index()])).tolist()
        jax.distributed.initialize()
        imported_by_name()
        jax.distributed.initialize("elsewhere:1", 2, jax.process_index())
        with pytest.raises(RuntimeError, match="does not match this worker, which is process"):
            jax.distributed.initialize("elsewhere:1", 3, 0)
        warm = "trireme._zygote" in Path(f"/proc/{os.getppid()}/cmdline").read_text()
        return ranks, jax.device_count(), jax.local_device_count(), jax.default_backend(), warm

    config = JaxConfig(num_cpu_devices=3)
    for _ in range(2):
        result = JaxTrainer(seen, jax_config=config, scaling_config=TWO).fit()
        assert result.return_value == ([[0], [1]], 6, 3, "cpu", True)


def compute(config: dict[str, Any]) -> int:
    """How many functions JAX has compiled, of those that it keeps in files."""
    if config["folder"]:
        jax.config.update("jax_compilation_cache_dir", config["folder"])
    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
    multihost_utils.process_allgather(jnp.ones(37) * 2)
    if config["again"] and trireme.get_context().get_world_rank() == 1:
        assert "cache_hits" in events and "cache_misses" not in events
    return events.count("cache_misses")


def test_a_second_fit_compiles_nothing(tmp_path: Path) -> None:
    def fit(again: bool, folder: str = "") -> Any:
        config = {"again": again, "folder": folder}
        return JaxTrainer(compute, train_loop_config=config, scaling_config=TWO).fit().return_value

    assert fit(again=False) > 0
    assert fit(again=True) == 0
    assert fit(again=False, folder=str(tmp_path)) > 0
    assert any(each.name.endswith("-cache") for each in tmp_path.iterdir()), "JAX's own files"


PREPARED = """
import os
import jax
import jax.numpy as jnp
from jax._src import xla_bridge
from jax._src.interpreters import mlir
from trireme.jax import _prepared_contexts as prepared

original = mlir._trireme_original_make_ir_context
assert not xla_bridge.backends_are_initialized() and len(os.listdir("/proc/self/task")) == 1
if (pid := os.fork()) != 0:
    assert os.waitpid(pid, 0)[1] == 0
contexts = [mlir.make_ir_context() for _ in range(prepared._COUNT + 1)]
assert len({id(context) for context in contexts}) == len(contexts)
del contexts
text = jax.jit(lambda x: jnp.tanh(x) + 1).lower(jnp.ones(3)).as_text()
mlir.make_ir_context = original
assert text == jax.jit(lambda x: jnp.tanh(x) + 1).lower(jnp.ones(3)).as_text()
os._exit(0)
"""


def test_prepared_contexts_are_used_once_also_in_a_forked_process() -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "TRIREME_NO_WARM_UP": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PREPARED], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_later_workers_find_prepared_contexts() -> None:
    def prepared() -> tuple[bool, float]:
        rows = jax.make_array_from_process_local_data(
            NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data")), np.ones((2, 4))
        )
        return "trireme.jax._prepared_contexts" in sys.modules, float(jax.jit(jnp.sum)(rows))

    deadline = time.monotonic() + 120
    while not (found := JaxTrainer(prepared, scaling_config=TWO).fit().return_value)[0]:
        assert time.monotonic() < deadline, "the warm process has not prepared any"
    assert found == (True, 16.0)


def test_folders_of_killed_drivers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "trireme_jax_killed").mkdir()
    first, second = compiled_folder.__wrapped__(), compiled_folder.__wrapped__()
    assert {str(each) for each in tmp_path.iterdir()} == {first, second}


def test_workers_that_train_separate_models_are_warned() -> None:
    def train() -> None:
        jax.block_until_ready(jnp.ones(3) + 1)

    result = JaxTrainer(train, scaling_config=TWO).fit()
    log = Path(result.path, "logs", "attempt_0", "rank_0.log").read_text()
    assert "no computation has spanned several workers, so each of the 2 workers worked alone" in log


def test_a_rank_that_hangs_is_named_and_replaced() -> None:
    def train() -> int:
        rank, attempt = jax.process_index(), trireme.get_context()._attempt
        for step in range(3):
            while rank == 1 and step == 1 and attempt == 0:
                signal.pause()
            multihost_utils.process_allgather(np.array([step]))
            trireme.report({"step": step})
        return attempt

    failures = FailureConfig(max_failures=1, hang_timeout_s=3, on_hang="restart")
    result = JaxTrainer(train, scaling_config=TWO, run_config=RunConfig(failure_config=failures)).fit()
    assert result.return_value == 1
    (hang,) = events(result, "hang_detected")
    assert "signal.pause" in hang["summary"] or "in train" in hang["summary"]
    assert next(event["cause"] for event in events(result, "worker_failed")) == "hang"


def test_ranks_that_do_not_form_one_group_are_refused() -> None:
    """Unpickling an array creates the devices of one process alone."""
    with pytest.raises(trireme.TrainingFailedError, match=r"JAX was used before.*pass NumPy arrays in"):
        JaxTrainer(fitted, train_loop_config={"weights": Pickled()}, scaling_config=TWO).fit()


def test_batches_that_cannot_be_divided_are_refused_before_they_are_read() -> None:
    def read() -> None:
        shard = trireme.get_dataset_shard("train")
        mesh = jax.make_mesh((2,), ("model",))
        divided, replicated = (NamedSharding(mesh, PartitionSpec(axis)) for axis in ("model", None))
        with pytest.raises(ValueError, match="a batch has 7 rows: choose another batch size"):
            iter_batches(shard, divided, global_batch_size=7)
        with pytest.raises(ValueError, match=r"the last batch of an epoch has 1 row.*drop_last=True"):
            iter_batches(shard, divided, global_batch_size=8)
        with pytest.raises(KeyError, match="has no sharding for column 'x': add it"):
            next(iter(iter_batches(shard, {"y": divided}, batch_size=4, drop_last=True)))
        with pytest.raises(ValueError, match="divide the rows among all workers"):
            iter_batches(shard, replicated, global_batch_size=8, drop_last=True)
        batches = list(iter_batches(shard, divided, batch_size=4, drop_last=True, dtypes=jnp.bfloat16))
        assert [(batch["x"].shape, batch["x"].dtype) for batch in batches] == [((8,), jnp.bfloat16)] * 2

    rows = trireme.data.from_arrow(pa.table({"x": np.arange(17.0)}))
    JaxTrainer(read, scaling_config=TWO, datasets={"train": rows}).fit()


class Pickled:
    """As a jax.Array is pickled, without JAX in this process."""

    def __reduce__(self) -> Any:
        return jnp.ones, (2,)


SCRIPT = """
import os, sys
import flax.linen as nn
import jax, optax
import numpy as np
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from trireme import ScalingConfig
from trireme.jax import JaxTrainer, save_sharded

def train():
    before = set(sys.modules)
    threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
    mesh = Mesh(jax.devices(), ("data",))
    model, whole = nn.Dense(1), NamedSharding(mesh, PartitionSpec())
    params = jax.device_put(model.init(jax.random.key(0), np.zeros((1, 4))), whole)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(0.1))
    batch = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), np.ones((2, 4)))
    gradient = jax.jit(jax.grad(lambda params, batch: state.apply_fn(params, batch).mean()))
    state = state.apply_gradients(grads=gradient(state.params, batch))
    save_sharded(state)
    return threads, sorted(set(sys.modules) - before)

if __name__ == "__main__":
    threads, imported = JaxTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
    print("RESULT", threads, len(imported), *imported)
"""


def test_the_first_step_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = [line.split() for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert told[1] == "1" and int(told[2]) < 25, told


def test_gpus_that_jax_cannot_use_are_an_error(tmp_path: Path) -> None:
    script = (
        "import trireme; from trireme import ScalingConfig; from trireme.jax import JaxTrainer\n"
        "trireme.init(num_gpus=1)\n"
        "JaxTrainer(print, scaling_config=ScalingConfig(use_gpu=True)).fit()"
    )
    environment = {**os.environ, "TRIREME_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1
    assert "cannot use the devices 'cuda,cpu', and this worker holds GPU 0" in done.stderr
    assert 'install a build of JAX for this GPU (pip install "jax[cuda13]")' in done.stderr


def test_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="workers have no GPUs; pass scaling_config=ScalingConfig"):
        JaxTrainer(fitted, jax_config=JaxConfig(use_gpu=True), scaling_config=TWO)
    with pytest.raises(ConfigError, match="workers use either TPUs or GPUs"):
        JaxConfig(use_gpu=True, use_tpu=True)
    with pytest.raises(ConfigError, match=r"JaxConfig\.timeout_s: expected 1 second or more, got 0"):
        JaxConfig(timeout_s=0)
    with pytest.raises(ConfigError, match=r"JaxConfig\.num_cpu_devices: expected a positive integer, got 0"):
        JaxConfig(num_cpu_devices=0)
