"""Errors that name what cannot be pickled."""

from __future__ import annotations

import functools
import linecache
import sys
import threading
from typing import Any

import pytest

from trireme import _ship

LOCK = threading.Lock()


class Holder:
    def __init__(self) -> None:
        self.inner = {"list": [1, threading.Lock()]}

    def train(self) -> Any:
        return self.inner


def with_global() -> Any:
    return LOCK


with_global.__module__ = "__main__"  # as in a script: by value, with the globals that it uses


def with_default(lock: Any = None) -> Any:
    return lock


def closure_of_closure() -> Any:
    lock = threading.Lock()

    def helper() -> Any:
        return lock

    def train() -> Any:
        return helper()

    return train


def generator_in_config() -> dict[str, Any]:
    return {"data": {"rows": (row for row in [1])}}


@pytest.mark.parametrize(
    ("function", "config", "words"),
    [
        (closure_of_closure(), None, ["train", "'helper'", "'lock'", "_thread.lock"]),
        (with_global, None, ["global variable 'LOCK'"]),
        (Holder().train, None, ["Holder.train", "attribute 'inner'", "key 'list'", "element 1"]),
        (functools.partial(with_default, LOCK), None, ["argument 0"]),
        (with_default, generator_in_config(), ["train_loop_config", "key 'data'", "key 'rows'", "generator"]),
    ],
)
def test_the_culprit_is_named(function: Any, config: Any, words: list[str]) -> None:
    with pytest.raises(TypeError) as caught:
        _ship.pack(function, (config,), {}, [])
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_default_value_is_named() -> None:
    def train(lock: Any = LOCK) -> Any:
        return lock

    with pytest.raises(TypeError, match="default value"):
        _ship.pack(train, (), {}, [])


def test_a_structure_that_contains_itself_ends_the_search() -> None:
    loop: dict[str, Any] = {"lock": threading.Lock()}
    loop["self"] = loop
    with pytest.raises(TypeError, match="lock"):
        _ship.pack(lambda: loop, (), {}, [])


def test_source_lines_of_cells_travel_with_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["def cell():\n", "    raise ValueError('in a cell')\n"]
    name = "/tmp/ipykernel_1/2.py"  # as IPython adds its cells: without a modification time
    monkeypatch.setitem(linecache.cache, name, (60, None, lines, name))
    monkeypatch.setitem(linecache.cache, "/usr/file.py", (60, 1.0, lines, "/usr/file.py"))
    monkeypatch.setitem(linecache.cache, "too long", (2 << 20, None, lines, "too long"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    packed = _ship.pack(len, ([],), {}, sys.path)
    assert "too long" not in _ship._typed_sources()
    monkeypatch.setattr(linecache, "cache", {})
    assert _ship.unpack(packed)[0] is len
    assert linecache.getline(name, 2) == lines[1]
    assert "/usr/file.py" not in linecache.cache


@pytest.mark.torch
def test_a_function_that_uses_torch_and_an_attribute_named_ops() -> None:
    import torch

    def train(machine: Any = None) -> Any:
        return torch.zeros(1), machine.ops  # cloudpickle takes this for torch.ops

    train.__globals__["torch"] = torch
    try:
        function, _, _ = _ship.unpack(_ship.pack(train, (), {}, list(sys.path)))
    finally:
        del train.__globals__["torch"]
    assert callable(function)
