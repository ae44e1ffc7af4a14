"""Watches the event log of a run and injects the faults of the scenario into its processes."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from chaos import load, process_table, wire
from chaos.scenario import CAPACITY, DISK_FULL, FREEZE, NODE_KILL, Fault, Scenario

BALLAST = "ballast"


class Events:
    """Follows a log that is being written; an incomplete line is left for the next read."""

    def __init__(self, folder: Path, where: str = "events.jsonl") -> None:
        self._folder, self._where = folder, where
        self._offset = 0

    def new(self) -> list[dict[str, Any]]:
        try:
            path = next(self._folder.glob(self._where), self._folder / "events.jsonl")
            with path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for event in map(_parse, whole.splitlines()) if event]


def events_of(scenario: Scenario, run: Path, state_dir: Path) -> Events:
    """The log of a run with remote storage is written on this machine."""
    return Events(state_dir, "mirror/*/chaos/events.jsonl") if scenario.far else Events(run)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None  # a driver was killed while writing it, and the next one continued
    return event


def step_of(event: dict[str, Any]) -> int:
    """The step of a report. Not its index: a step may have several reports."""
    return int(event.get("metrics", {}).get("step", -1)) if event["event"] == "report" else -1


class Outside:
    """One for all starts of a scenario: faults injected into the first start are not repeated in the second."""

    def __init__(self, scenario: Scenario, run: Path, state_dir: Path, mark: str, loaded: bool) -> None:
        self._scenario, self._run, self._state_dir, self._mark = scenario, run, state_dir, mark
        self._waiting = [fault for fault in scenario.faults if not fault.inside]
        self._events = events_of(scenario, run, state_dir)
        self._pids: dict[int, int] = {}
        self._driver, self._run_id = 0, ""
        self._connected = False  # rank 0 has been
        self._loaded = loaded
        self._committing: dict[int, set[int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._acting: list[threading.Thread] = []
        self._failed: list[Exception] = []
        self.met: list[Fault] = []

    def __enter__(self) -> Outside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for thread in self._acting:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _watch(self) -> None:
        while not self._over.wait(0.003):
            for event in self._events.new():
                self._learn(event)
                for fault in [fault for fault in self._waiting if self._is_due(fault, event)]:
                    self._waiting.remove(fault)
                    # On a separate thread: some faults take a while.
                    self._acting.append(threading.Thread(target=self._try_to_act, args=[fault]))
                    self._acting[-1].start()

    def _learn(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "run_started":
                self._driver, self._run_id = event["pid"], event["id"]
            case "worker_started" | "worker_kept":
                if pid := event.get("pid"):
                    self._pids[event["rank"]] = pid
                    if self._loaded:
                        load.set_session_priority(pid, load.LOWEST)
            case "worker_connected" if event["rank"] == 0:
                self._connected = True
            case "report" if event.get("checkpoint"):
                self._committing.setdefault(step_of(event), set()).add(event["rank"])

    def _is_due(self, fault: Fault, event: dict[str, Any]) -> bool:
        kind: str = event["event"]
        step = step_of(event)
        of_rank: bool = event.get("rank") == fault.rank
        match fault.phase:
            case "start":
                return kind == "worker_started" and of_rank
            case "rendezvous":
                return kind == "training_started"
            case "step":
                return kind == "report" and step >= fault.step
            case "upload":
                return kind == "report" and of_rank and step >= fault.step and bool(event.get("checkpoint"))
            case "commit":  # every rank has reported: the manifest is being written
                expected = 1 if self._scenario.only_rank_zero else self._scenario.workers
                return kind == "report" and len(self._committing.get(fault.step, ())) >= expected
            case "restart":
                return kind == "attempt_failed"
            case "resize":
                return kind == "resizing"
            case "shutdown":
                return kind == "worker_finished"
            case "instant":
                return kind == "run_started"
        return False

    def _try_to_act(self, fault: Fault) -> None:
        try:
            self._act(fault)
        except Exception as error:  # an error of this suite: the fault was not injected
            self._failed.append(error)

    def _act(self, fault: Fault) -> None:
        time.sleep(fault.delay_s)
        self.met.append(fault)
        pid = self._pids.get(fault.rank, 0)
        match fault.kind:
            case "kill" | "term" if pid:
                process_table.send(pid, signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
            case "stop" if pid:
                process_table.pause(pid, fault.amount)
            case "cut" if pid:
                process_table.cut_connections(pid)
            case "pulse":
                for _ in range(3):
                    process_table.pause(self._pids.get(fault.rank, self._driver), fault.amount / 3)
                    time.sleep(0.05)
            case "zygote_kill":
                if zygote := process_table.zygote_of(self._driver):
                    process_table.send(zygote, signal.SIGKILL)
            case _ if fault.kind == NODE_KILL:
                if agents := process_table.agents(self._mark):
                    process_table.send(agents[fault.rank % len(agents)], signal.SIGKILL)
            case "driver_kill":
                process_table.send(self._driver, signal.SIGKILL)
            case "driver_term":
                process_table.send(self._driver, signal.SIGTERM)
            case "driver_int":
                process_table.send(self._driver, signal.SIGINT)
            case "driver_pause":
                process_table.pause(self._driver, fault.amount)
            case _ if fault.kind == FREEZE:
                process_table.freeze(self._mark, fault.amount, random.Random(repr(fault)))
            case "fuzz":
                dice = random.Random(repr(fault))
                self._with_controller(lambda controller: wire.fuzz(controller, dice, 60, lambda: self._connected))
            case _ if fault.kind == CAPACITY:
                self._with_controller(lambda c: c.ask(wire.SET_CAPACITY, fault.amount, None, {}))
            case _ if fault.kind == DISK_FULL:
                fill_disk(self._run.parent, fault.amount)

    def _with_controller(self, use: Any) -> None:
        if controller := wire.Controller.of(self._state_dir, self._run_id):
            with contextlib.suppress(OSError):  # the run may end first
                use(controller)


def fill_disk(folder: Path, seconds: float) -> None:
    ballast = folder / BALLAST
    try:
        with ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
    except OSError:
        time.sleep(seconds)
    ballast.unlink()
