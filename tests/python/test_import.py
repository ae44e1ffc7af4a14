from __future__ import annotations

import subprocess
import sys

import trireme


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_starts_no_thread_process_or_socket() -> None:
    code = """
import os, trireme
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
    assert _python(f"import sys, trireme; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_trireme_torch_does_not_import_torch() -> None:
    assert _python("import sys, trireme.torch; print('torch' in sys.modules)") == "False"


def test_public_names_are_there() -> None:
    for name in trireme.__all__:
        assert getattr(trireme, name) is not None
    assert trireme.__version__.count(".") >= 2
