"""A process collects its own stacks while its main thread hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Collects from another thread until the main thread hangs (at the expected line and system call: a function that has
# not reached it has another line), then ends the process from there.
PRELUDE = """
import os, sys, threading, time
from trireme import _core, _stacks

_stacks.prepare()
_stacks.prepare()

def collect(place, native):
    where = text = ""
    while place not in where or native not in text.split("\\n\\n")[0]:
        where, text = _core.collect_stacks(20.0)
    again = _core.collect_stacks(20.0)[0]
    os.write(1, f"{where}\\n{again}\\n{text}".encode())
    os._exit(0)

"""

SLEEPS = """
def step():
    time.sleep(1000)

threading.Thread(target=collect, args=("in step", "nanosleep")).start()
step()
"""

# A call into C holds the GIL (PyDLL does not release it) while the stacks are collected.
HOLDS_LOCK = """
import ctypes

def waits():
    ctypes.PyDLL(None).poll(None, 0, 300)

def collect_without_lock():
    while True:
        where, text = _core.collect_stacks(20.0)
        if where.endswith(" in waits") and "poll" in text.split("\\n\\n")[0]:
            os.write(1, f"{where}\\n{where}\\n{text}".encode())
            os._exit(0)

threading.Thread(target=collect_without_lock).start()
while True:
    waits()
"""

RECURSES = """
def down(depth):
    if depth == 0:
        time.sleep(1000)
    down(depth - 1)

threading.Thread(target=collect, args=("in down", "nanosleep")).start()
down(500)
"""

IN_LIBRARY = """
def waits_for_event():
    threading.Event().wait()

threading.Thread(target=collect, args=(" wait)", "")).start()
waits_for_event()
"""


def run(folder: Path, body: str) -> tuple[str, str, str]:
    (folder / "train.py").write_text(PRELUDE + body)
    done = subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    where, again, text = done.stdout.split("\n", 2)
    return where, again, text


@pytest.mark.parametrize(
    ("body", "function", "native"),
    [(SLEEPS, "step", "nanosleep"), (HOLDS_LOCK, "waits", "poll"), (RECURSES, "down", "nanosleep")],
)
def test_the_main_thread_shows_where_it_is(tmp_path: Path, body: str, function: str, native: str) -> None:
    where, again, text = run(tmp_path, body)
    assert where.startswith("train.py:") and where.endswith(f" in {function}")
    assert again == where
    main = text.split("\n\n")[0]
    assert main.startswith("Thread ") and ", main thread\n  Python, most recent call first:\n" in main
    assert f" in {function}\n" in main
    assert native in main.partition("Native, most recent call first:")[2]
    assert "collects these stacks\n  Python, most recent call first:\n" in text  # the other thread has its frames too
    assert "did not answer" not in text


def test_a_library_is_named_next_to_the_line_that_called_it(tmp_path: Path) -> None:
    where, _, _ = run(tmp_path, IN_LIBRARY)
    assert where.startswith("train.py:") and where.endswith(" wait)")


# Stacks are also collected while another signal is handled on faulthandler's small signal stack.
SIGNAL_STACK = """
import ctypes

class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

now = Stack()
assert ctypes.CDLL(None).sigaltstack(None, ctypes.byref(now)) == 0
print(f"{now.flags}\\n{now.size}\\n")
"""


def test_the_main_thread_has_a_signal_stack_with_room_for_nested_signals(tmp_path: Path) -> None:
    flags, size, _ = run(tmp_path, SIGNAL_STACK)
    assert flags == "0"
    assert int(size) >= 64 * 1024
