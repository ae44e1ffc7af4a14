"""The store of torch's process groups: what c10d expects of it, from Python, from C++ and from C++ threads."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import trireme
from trireme import Result, ScalingConfig, WorkerGroupError
from trireme.torch import TorchConfig, TorchTrainer

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def fit(function: Any, workers: int = 2, **options: Any) -> Result:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=workers), **options).fit()


def control_store(prefix: str) -> Any:
    from trireme.torch._store import ControlStore

    session = trireme._session._current._core  # type: ignore[union-attr]
    return ControlStore(session, prefix, datetime.timedelta(seconds=60))


BINARY = bytes(range(256))


def check_contract(store: Any) -> None:
    """Every method that torch passes on to a store in Python."""
    import torch.distributed as dist

    store.set("text", "value")
    store.set("binary", BINARY)
    assert (store.get("text"), store.get("binary")) == (b"value", BINARY)
    store.append("binary", BINARY)
    store.append("appended", b"\x00")
    assert store.multi_get(["appended", "binary"]) == [b"\x00", BINARY + BINARY]
    store.multi_set(["first", "second"], [b"\xff", "2"])
    assert store.multi_get(["second", "first"]) == [b"2", b"\xff"]
    assert (store.add("counter", 5), store.add("counter", -2)) == (5, 3)
    assert store.compare_set("chosen", "", BINARY.decode("latin-1")) == BINARY.decode("latin-1").encode()
    assert store.compare_set("chosen", "other", "second") == BINARY.decode("latin-1").encode()
    assert store.check(["text", "binary"])
    assert not store.check(["text", "absent"])
    store.wait(["text", "binary"])
    store.wait(["text"], datetime.timedelta(seconds=60))
    before = store.num_keys()
    assert store.delete_key("text")
    assert not store.delete_key("text")
    assert store.num_keys() == before - 1
    assert store.has_extended_api()
    store.barrier("all", 1)
    timeout = store.timeout
    assert timeout == datetime.timedelta(seconds=60)
    store.set_timeout(datetime.timedelta(seconds=0.1))
    assert store.timeout == datetime.timedelta(seconds=0.1)
    for call in (store.get, lambda key: store.wait([key]), lambda key: store.multi_get([key])):
        with pytest.raises(dist.DistStoreError, match=r"timed out after 0\.1 s waiting for .*absent"):
            call("absent")
    store.set_timeout(timeout)
    with pytest.raises(dist.DistStoreError, match=r"timed out after 0\.2 s"):
        store.wait(["absent"], datetime.timedelta(seconds=0.2))


def test_every_method_directly_through_a_prefix_and_on_clones() -> None:
    def train() -> None:
        import gc

        import torch.distributed as dist

        check_contract(control_store("direct/"))
        check_contract(dist.PrefixStore("prefix", control_store("mine/")))
        check_contract(dist.PrefixStore("outer", dist.PrefixStore("inner", control_store("nested/"))))
        clone = control_store("cloned/").clone()
        gc.collect()
        check_contract(clone)
        # C++ clones the store itself, and only it holds the result.
        clone = dist.PrefixStore("prefix", control_store("cloned_in_cpp/")).clone()
        gc.collect()
        check_contract(clone)

    assert fit(train, 1).error is None


def test_a_group_is_split() -> None:
    def train() -> Any:
        import torch
        import torch.distributed as dist

        # Gloo supports it, but the Python function asks for an accelerator.
        torch.accelerator.is_available = lambda: True  # type: ignore[method-assign]
        torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cpu")  # type: ignore
        world = dist.group.WORLD
        assert world is not None
        world.bound_device_id = torch.device("cpu", 0)
        options = world._get_backend(torch.device("cpu")).options
        # Connects the ranks of each part through clones of the store.
        part = dist.split_group(split_ranks=[[0, 2], [1]], pg_options=options)
        seen = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(seen, group=part)
        sums = [torch.zeros(1) for _ in range(3)]
        dist.all_gather(sums, seen)
        return dist.get_process_group_ranks(part), [total.item() for total in sums]

    # For one type of device: torch connects a part once per type, and all of them through the same keys (docs/gpu.md).
    result = fit(train, 3, torch_config=TorchConfig(backend="cpu:gloo"))
    assert result.return_value == ([0, 2], [2.0, 1.0, 2.0])


def test_from_a_thread_of_cpp() -> None:
    def train() -> Any:
        import os
        import threading

        import torch
        import torch.distributed as dist

        from trireme.torch import _store

        called_by = set()

        def watch(name: str) -> None:
            method = getattr(_store.ControlStore, name)

            def watched(self: Any, *arguments: Any) -> Any:
                called_by.add(threading.current_thread() is threading.main_thread())
                return method(self, *arguments)

            setattr(_store.ControlStore, name, watched)

        for name in ("get", "set", "wait", "multi_get"):
            watch(name)
        # Gloo then connects in its own thread, at the first operation.
        os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
        group = dist.new_group(backend="gloo")
        called_by.clear()
        seen = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(seen, group=group)
        return seen.item(), called_by

    total, called_by = fit(train, 2).return_value
    assert total == 3.0
    assert called_by == {False}


def test_a_deadlock_in_multi_get_is_found() -> None:
    def train() -> None:
        rank = trireme.get_context().get_world_rank()
        control_store("deadlock/").multi_get(["set by nobody", f"also {rank}"])

    with pytest.raises(WorkerGroupError, match="Deadlock: every rank waits, and no rank can make progress") as raised:
        fit(train, 2)
    assert "deadlock/set by nobody" in str(raised.value)
