from __future__ import annotations

import importlib.util
import pathlib

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "generate_core_stub.py"


def test_stub_is_that_of_the_bindings() -> None:
    pytest.importorskip("nanobind")
    spec = importlib.util.spec_from_file_location("generate_core_stub", TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.TARGET.read_text() == tool.stub(), f"run {TOOL.name}: the bindings have changed"
