from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import trireme


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_starts_no_thread_process_or_socket() -> None:
    code = """
import os, trireme
[getattr(trireme, name) for name in trireme.__all__]
print(len(os.listdir("/proc/self/task")))
links = []
for fd in os.listdir("/proc/self/fd"):
    try:
        links.append(os.readlink(f"/proc/self/fd/{fd}"))
    except FileNotFoundError:
        pass
print([link for link in links if link.startswith("socket:")])
print(open(f"/proc/self/task/{os.getpid()}/children").read().split())
"""
    assert _python(code).splitlines() == ["1", "[]", "[]"]


def test_import_does_not_load_what_only_some_need() -> None:
    heavy = ["torch", "numpy", "pandas", "pyarrow", "rich", "cloudpickle", "asyncio", "multiprocessing"]
    names = "[getattr(trireme, name) for name in trireme.__all__]"
    assert _python(f"import sys, trireme; {names}; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_the_package_imports_its_modules_on_use() -> None:
    """The command and what runs on the nodes of a cluster start without them."""
    listed = "[m for m in sys.modules if m.startswith('trireme.')]"
    assert _python(f"import sys, trireme; print({listed})") == "[]"
    assert _python(f"import sys, trireme.engines._ray_actors; print('trireme._core' in {listed})") == "False"
    assert _python("import trireme; print(trireme.callbacks.UserCallback is trireme.UserCallback)") == "True"


def test_trireme_torch_does_not_import_torch() -> None:
    assert _python("import sys, trireme.torch; print('torch' in sys.modules)") == "False"


@pytest.mark.torch
def test_prepare_model_does_not_import_fsdp() -> None:
    """FSDP takes nearly as long to import as torch, and most models are not sharded."""
    code = """
import sys, torch
from trireme.torch import _model
_model._check_model(torch.nn.Linear(1, 1), "ddp")
_model._checked_options("ddp", {"bucket_cap_mb": 1})
print("torch.distributed.fsdp" in sys.modules)
"""
    assert _python(code) == "False"


def test_public_names_are_there() -> None:
    for name in trireme.__all__:
        assert getattr(trireme, name) is not None
        assert name in dir(trireme)
    assert trireme.__version__.count(".") >= 2


def test_other_names_are_as_absent_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'trireme\.no_such_module'"):
        importlib.import_module("trireme.no_such_module")
    assert not hasattr(trireme, "tensorflow")


@pytest.mark.parametrize(("module", "name"), [("lightning", "DDPStrategy"), ("transformers", "prepare_trainer")])
def test_an_adapter_without_its_framework_names_the_extra(module: str, name: str) -> None:
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    with pytest.raises(ModuleNotFoundError, match=rf'pip install "trireme\[{module}\]"'):
        getattr(importlib.import_module(f"trireme.{module}"), name)


def test_lazily_imported_names_are_listed() -> None:
    import trireme.torch

    assert set(trireme.torch.__all__) <= set(dir(trireme.torch))


def test_submodules_of_data_need_no_import_of_their_own() -> None:
    pytest.importorskip("pyarrow")
    code = """
import trireme.data
assert {"aggregate", "expressions", "preprocessors"} <= set(dir(trireme.data))
print(trireme.data.aggregate.Sum.__name__, trireme.data.preprocessors.StandardScaler.__name__)
"""
    assert _python(code) == "Sum StandardScaler"
