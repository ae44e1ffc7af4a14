"""Faults that a worker of a chaos scenario inflicts on itself, once each, at the position set by the scenario."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

from chaos.scenario import Fault, Scenario


class Misfortune(Exception):
    """Raised by the training function, as the scenario requires."""


class Inside:
    def __init__(self, scenario: Scenario, folder: str, rank: int) -> None:
        self._mine = [(i, f) for i, f in enumerate(scenario.faults) if f.inside and f.rank == rank]
        self._folder = folder

    def reach(self, phase: str, step: int = 0) -> None:
        """The training function has reached this position; it may not get past it."""
        for number, fault in self._due(phase, step):
            if self._first_time(number):
                strike(fault)

    def reach_beside(self, phase: str, step: int) -> None:
        """The same after a delay, while the function continues."""
        for number, fault in self._due(phase, step):
            if self._first_time(number):
                timer = threading.Timer(fault.delay_s, strike, [fault])
                timer.daemon = True
                timer.start()

    def _due(self, phase: str, step: int) -> list[tuple[int, Fault]]:
        once = phase in ("rendezvous", "shutdown")
        return [(i, f) for i, f in self._mine if f.phase == phase and (once or f.step == step)]

    def _first_time(self, number: int) -> bool:
        """Restarted functions and restarted drivers reach this position again."""
        try:
            Path(self._folder, f"fired_{number}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def strike(fault: Fault) -> None:
    match fault.kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "term":
            os.kill(os.getpid(), signal.SIGTERM)
        case "exception":
            raise Misfortune(str(fault))
        case "exit":
            sys.exit(3)
        case "os_exit":
            os._exit(0)
        case "hang":
            while True:
                time.sleep(1)
        case "hang_native":
            # Holds the interpreter lock and cannot be interrupted by signals: locks a mutex twice.
            lock = ctypes.create_string_buffer(64)
            for _ in range(2):
                ctypes.PyDLL(None).pthread_mutex_lock(lock)
        case "slow":
            time.sleep(1.0)
        case _:
            raise ValueError(f"unknown fault for a worker: {fault.kind!r}")
