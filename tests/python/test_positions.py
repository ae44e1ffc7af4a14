"""The positions of data sources that threads of a training function create and report."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from trireme._positions import Positions

SOURCES = 2_000


class Source:
    def now(self) -> dict[str, Any]:
        return {"row": 1}


@pytest.fixture
def many_switches() -> Any:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_report_while_others_create_sources(many_switches: None) -> None:
    positions = Positions({"data/left": {"row": 7}})
    over = threading.Event()
    failures: list[Exception] = []

    def report() -> None:
        try:
            while not over.is_set():
                assert "data/left" in positions.now()
        except Exception as error:
            failures.append(error)

    reporters = [threading.Thread(target=report) for _ in range(3)]
    for reporter in reporters:
        reporter.start()
    kept = []
    for number in range(SOURCES):
        source = Source()
        positions.add("loader", source.now)
        if number % 100 == 0:
            kept.append(source)  # the others are freed
    over.set()
    for reporter in reporters:
        reporter.join()
    del source
    assert not failures
    assert set(positions.now()) == {"data/left", *(f"loader/{number}" for number in range(0, SOURCES, 100))}
