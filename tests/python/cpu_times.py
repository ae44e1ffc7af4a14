"""Reports the CPU seconds of each test, including its processes: pytest -p cpu_times --cpu-times FILE"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")


def _alive() -> float:
    """Of living descendants, and of those that they have waited for."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = (Path("/proc") / name / "stat").read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
        used[int(name)] = sum(map(int, fields[11:15])) / TICKS
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            total += used[child]
            waiting.append(child)
    return total


def used() -> float:
    mine = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime + _alive()


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--cpu-times", default=None, help="write CPU and wall seconds of each test to this file")


class Recorder:
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, name: str, cpu: float, wall: float) -> None:
        with open(self.path, "a") as file:
            file.write(f"{cpu:.2f}\t{wall:.2f}\t{name}\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[Any]:
        cpu, wall = used(), time.monotonic()
        try:
            return (yield)
        finally:
            self.write(item.nodeid, used() - cpu, time.monotonic() - wall)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[Any]:
        try:
            return (yield)
        finally:
            self.write("(start and collection)", used(), 0)


def pytest_configure(config: Any) -> None:
    if path := config.getoption("--cpu-times"):
        config.pluginmanager.register(Recorder(path))
