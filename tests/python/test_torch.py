from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest

import trireme
from runs import events, pids
from trireme import ConfigError, FailureConfig, Result, RunConfig, ScalingConfig, WorkerGroupError
from trireme.torch import TorchConfig, TorchTrainer, get_device, get_devices

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def fit(function: Any, workers: int = 2, **options: Any) -> Result:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=workers), **options).fit()


def test_process_group_is_ready_and_the_variables_are_set() -> None:
    def train() -> Any:
        import torch
        import torch.distributed as dist

        context = trireme.get_context()
        assert dist.is_initialized()
        assert (dist.get_rank(), dist.get_world_size()) == (context.get_world_rank(), context.get_world_size())
        for name, value in {
            "RANK": context.get_world_rank(),
            "WORLD_SIZE": context.get_world_size(),
            "LOCAL_RANK": context.get_local_rank(),
            "LOCAL_WORLD_SIZE": context.get_local_world_size(),
            "NODE_RANK": context.get_node_rank(),
        }.items():
            assert os.environ[name] == str(value), name
        total = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(total)
        ports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ports, (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]))
        return dist.get_backend(), total.item(), len(set(ports))

    assert fit(train, 4).return_value == ("gloo", 10.0, 1)


def test_ddp_new_group_and_barrier() -> None:
    def train() -> Any:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        torch.manual_seed(dist.get_rank())
        model = DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()
        evens = dist.new_group([0, 2])
        seen = torch.ones(1)
        if dist.get_rank() in (0, 2):
            dist.all_reduce(seen, group=evens)
        dist.barrier()
        weights: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(weights, [parameter.tolist() for parameter in model.parameters()])
        return all(other == weights[0] for other in weights), seen.item()

    assert fit(train, 3).return_value == (True, 2.0)


def test_store_methods() -> None:
    def train() -> None:
        import datetime

        import torch.distributed as dist

        from trireme.torch._store import ControlStore

        rank = dist.get_rank()
        session = trireme._session._current._core  # type: ignore[union-attr]
        store = ControlStore(session, "mine/", datetime.timedelta(seconds=30))
        if rank == 0:
            store.set("text", "value")
            store.set("bytes", b"\x00\xff")
        store.wait(["text", "bytes"])
        assert store.get("text") == b"value"
        assert store.get("bytes") == b"\x00\xff"
        assert store.check(["text"])
        assert not store.check(["text", "absent"])
        dist.barrier()
        store.add("counter", 5)
        dist.barrier()
        assert store.add("counter", 0) == 5 * dist.get_world_size()
        if rank == 0:
            assert store.compare_set("chosen", "", "first") == b"first"
            assert store.compare_set("chosen", "other", "second") == b"first"
            assert store.compare_set("chosen", "first", "second") == b"second"
            before = store.num_keys()
            assert store.delete_key("text")
            assert not store.delete_key("text")
            assert store.num_keys() == before - 1
        store.set_timeout(datetime.timedelta(seconds=0.2))
        with pytest.raises(dist.DistStoreError, match="absent"):
            store.get("absent")
        with pytest.raises(dist.DistStoreError):
            store.wait(["absent"], datetime.timedelta(seconds=0.1))
        dist.barrier()

    assert fit(train).error is None


def test_devices_on_a_machine_without_cuda() -> None:
    def train() -> Any:
        return str(get_device()), [str(device) for device in get_devices()], os.environ["ACCELERATE_TORCH_DEVICE"]

    assert fit(train, 1).return_value == ("cpu", ["cpu"], "cpu")


def test_torch_scalars_are_metrics() -> None:
    def train() -> None:
        import torch

        trireme.report(
            {"loss": torch.tensor(0.5), "count": torch.tensor(3), "grad": torch.ones(1).sum().requires_grad_()}
        )

    assert fit(train, 1).metrics == {"loss": 0.5, "count": 3, "grad": 1.0}


def test_a_tensor_of_many_values_is_refused_by_name() -> None:
    def train() -> None:
        import torch

        trireme.report({"weights": torch.ones(2, 3)})

    with pytest.raises(trireme.WorkerGroupError, match=r"weights.*Tensor"):
        fit(train, 1)


def test_every_attempt_has_its_own_group() -> None:
    def train() -> Any:
        import signal

        import torch
        import torch.distributed as dist

        total = torch.ones(1)
        dist.all_reduce(total)
        marker = f"{trireme.get_context().get_trial_dir()}/first"
        if not os.path.exists(marker):
            dist.barrier()
            if dist.get_rank() == 0:
                open(marker, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()
        return total.item()

    config = RunConfig(failure_config=FailureConfig(max_failures=1))
    assert fit(train, 3, run_config=config).return_value == 3.0


def test_threads_of_torch_follow_the_cpus() -> None:
    def train() -> Any:
        import torch

        return torch.get_num_threads()

    scaling = ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2})
    assert TorchTrainer(train, scaling_config=scaling).fit().return_value == 2


def test_threads_of_numpy_follow_the_cpus() -> None:
    pytest.importorskip("threadpoolctl")

    def train() -> Any:
        import numpy  # noqa: F401
        import threadpoolctl

        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["internal_api"] == "openblas"]

    scaling = ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2})
    result = TorchTrainer(train, scaling_config=scaling, run_config=RunConfig(preload=["numpy"])).fit()
    assert set(result.return_value) == {2}


def test_random_numbers_differ_between_workers_as_between_processes() -> None:
    def train() -> Any:
        import random

        import numpy
        import torch
        import torch.distributed as dist

        drawn: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(drawn, (random.random(), numpy.random.rand(), torch.rand(1).item()))
        return [len(set(column)) for column in zip(*drawn, strict=True)]

    assert fit(train).return_value == [2, 2, 2]


def test_workers_are_forked_from_the_warm_process() -> None:
    import json

    result = fit(lambda: None)
    with open(f"{result.path}/events.jsonl") as file:
        events = [json.loads(line) for line in file]
    assert [event["forked"] for event in events if event["event"] == "worker_started"] == [True, True]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"init_method": "file"}, "init_method"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": "long"}, "timeout_s"),
        ({"backend": 3}, "backend"),
    ],
)
def test_bad_torch_config(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        TorchConfig(**options)


def test_torch_config_must_be_one() -> None:
    with pytest.raises(TypeError, match="torch_config"):
        TorchTrainer(lambda: None, torch_config={"backend": "gloo"})  # type: ignore[arg-type]


def test_unknown_backend_is_an_error_of_the_worker() -> None:
    with pytest.raises(trireme.WorkerGroupError, match="no_such_backend"):
        fit(lambda: None, 1, torch_config=TorchConfig(backend="no_such_backend"))


def test_local_mode() -> None:
    result = TorchTrainer(lambda: str(get_device()), scaling_config=ScalingConfig(num_workers=0)).fit()
    assert result.return_value == "cpu"


def test_a_survivor_of_an_interrupted_rendezvous_meets_its_new_peer() -> None:
    """The rank was in init_process_group() when the other one died, and joins the next group in the same process."""
    from trireme.torch._backend import TorchBackend

    class DiesInTheRendezvous(TorchBackend):
        def on_start(self, context: Any, session: Any) -> None:
            if context.get_world_rank() == 1 and context._attempt < 2:
                # Rank 0 is in init_process_group() and waits for this rank.
                while session.store_num_keys() == 0:
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGKILL)
            super().on_start(context, session)

    class Config(TorchConfig):
        @property
        def backend_cls(self) -> Any:
            return DiesInTheRendezvous

    def train() -> tuple[int, float]:
        import torch
        import torch.distributed as dist

        total = torch.ones(1)
        dist.all_reduce(total)
        return trireme.get_context()._attempt, total.item()

    failure_config = FailureConfig(max_failures=2, warm_restart=True)
    result = fit(train, torch_config=Config(), run_config=RunConfig(name="run", failure_config=failure_config))
    assert result.return_value == (2, 2.0)
    assert [pids(result.path, number)[0] for number in range(3)] == [pids(result.path, 0)[0]] * 3


def test_ranks_that_wait_for_keys_that_are_never_set_fail_at_once(results: Path) -> None:
    def train() -> None:
        import torch.distributed as dist

        store = dist.distributed_c10d._get_default_store()
        store.get("of_rank_0" if dist.get_rank() == 1 else "of_rank_1")

    with pytest.raises(WorkerGroupError) as caught:
        fit(train, run_config=RunConfig(name="run"))
    message = str(caught.value)
    assert "Deadlock: every rank waits, and no rank can make progress" in message
    assert "rank 0 for store key torch/0/" in message
    assert "of_rank_1; rank 1 for store key torch/0/" in message
    (failed,) = events(results / "run", "worker_failed")
    assert failed["cause"] == "deadlock"


def test_another_thread_may_set_what_all_ranks_wait_for(results: Path) -> None:
    def train() -> bytes:
        import torch.distributed as dist

        store = dist.distributed_c10d._get_default_store()
        if dist.get_rank() == 1:
            threading.Timer(2.0, lambda: store.set("late", b"but set")).start()
        value: bytes = store.get("late")
        return value

    assert fit(train, run_config=RunConfig(name="run")).return_value == b"but set"


def test_a_rank_that_returns_early_is_named_as_the_cause() -> None:
    def train() -> None:
        import torch
        import torch.distributed as dist

        dist.barrier()
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(1))

    with pytest.raises(WorkerGroupError) as caught:
        fit(train)
    message = str(caught.value)
    assert "rank 1" in message.splitlines()[1]
    assert "ReturnedEarly: it returned from the training function while rank 0 waited for it" in message
    assert re.search("Connection (closed|reset) by peer", message.split("other workers")[1])


def test_libraries_that_remember_process_groups_object_to_being_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.torch._backend import TorchBackend

    backend = TorchBackend(TorchConfig())
    for name in ("accelerate", "deepspeed", "lightning", "pytorch_lightning", "megatron"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert backend.objection() == ""
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    assert backend.objection() == "deepspeed keeps process groups of this attempt in globals"
    monkeypatch.setitem(sys.modules, "accelerate", types.ModuleType("accelerate"))
    assert backend.objection() == "accelerate and deepspeed keep process groups of this attempt in globals"
