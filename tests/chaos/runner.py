"""Runs one scenario in a separate folder and checks the result."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from chaos import check, load, process_table
from chaos.check import Broken, Outcome
from chaos.outside import BALLAST, Outside
from chaos.scenario import DISK_FULL, ENDS_THE_DRIVER, FREEZE, FREEZE_LEASE_S, HANGS, Scenario

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = check.BUILD / "tests/chaos_program"
# Generous, because the machine may be busy. They only bound runs that would otherwise never end.
TIMEOUT_S, LOADED_TIMEOUT_S = 300.0, 1200.0
MOST_STARTS = 6
# In scenarios with a hang, a rank that is silent for this long hangs. At the lowest priority, reading a state of 8 MB
# alone may take several seconds, and reading one of 32 MB more than a minute.
HANG_S, LOADED_HANG_S = 3.0, 60.0
NO_HANG_S, LOADED_NO_HANG_S = 60.0, 600.0
DISK_BYTES = 2 << 20


class Skipped(Exception):
    """This machine does not support the scenario."""


@dataclass
class Done:
    restarts: int = 0
    starts: int = 0
    met: int = 0
    seconds: float = 0.0
    broken: str = ""
    folder: str = ""


class Interrupted(Exception):
    """The user has interrupted the suite."""


class Runner:
    """Caches the undisturbed runs, because many scenarios are compared with the same one. Thread-safe."""

    def __init__(self, folder: Path, loaded: bool = False) -> None:
        self._folder = folder
        self._loaded = loaded
        self._undisturbed: dict[str, Outcome] = {}
        self._one_at_a_time: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._interrupted = threading.Event()

    def interrupt(self) -> None:
        """Running scenarios end soon, with Interrupted."""
        self._interrupted.set()

    def run(self, scenario: Scenario) -> Done:
        begun = time.monotonic()
        place = self._place(scenario)
        done = Done(folder=str(place.folder))
        try:
            expected = self._expected(scenario)
            place.make()
            outcome = place.run_to_the_end()
            done.restarts, done.starts = outcome.restarts, outcome.starts
            place.check(outcome)
            done.met = place.met
            check.same_result(outcome, expected)
        except Broken as broken:
            done.broken = str(broken)
        except (Skipped, Interrupted):
            raise
        except Exception:  # unexpected error in a check: the other scenarios still run
            done.broken = traceback.format_exc()
        finally:
            place.clear(keep=bool(done.broken))
        done.seconds = time.monotonic() - begun
        return done

    def _expected(self, scenario: Scenario) -> Outcome:
        calm = scenario.undisturbed()
        with self._one_at_a_time[calm.name]:
            if calm.name not in self._undisturbed:
                # At normal priority also under load: only its result matters.
                place = Place(self._folder / calm.name, calm, self._interrupted, loaded=False)
                place.make()
                self._undisturbed[calm.name] = place.run_to_the_end()
            return self._undisturbed[calm.name]

    def _place(self, scenario: Scenario) -> Place:
        return Place(self._folder / scenario.name, scenario, self._interrupted, self._loaded)


class Place:
    """A scenario's folder: script, results, state, temporary files, and the environment of its processes."""

    def __init__(self, folder: Path, scenario: Scenario, interrupted: threading.Event, loaded: bool) -> None:
        self.folder, self.scenario = folder, scenario
        self._interrupted, self._loaded = interrupted, loaded
        self.results, self.temporary, self.state_dir = folder / "results", folder / "tmp", folder / "state"
        self.run = self.results / "chaos"
        self._mark = f"TRIREME_CHAOS={scenario.name}-{random.SystemRandom().randbytes(6).hex()}"
        self._shared_memory = set(os.listdir("/dev/shm"))
        self._mounted = False
        self.met = 0

    def make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.results, self.temporary, self.state_dir):
            folder.mkdir(parents=True)
        self.scenario.write(self.folder / "scenario.json")
        if DISK_FULL in self.scenario.kinds():
            self._mount_small_disk()

    def run_to_the_end(self) -> Outcome:
        """Starts the script, and restarts it after a fault that ends its driver."""
        may_end = bool(self.scenario.kinds() & ENDS_THE_DRIVER) or self._all_may_be_preempted()
        with Outside(self.scenario, self.run, self.state_dir, self._mark, self._loaded) as outside:
            for number in range(MOST_STARTS):
                code = self._start(number)
                if code == 0 or not may_end:
                    break
                # A user would free disk space before the restart.
                process_table.wait_until(lambda: not (self.results / BALLAST).exists(), TIMEOUT_S)
        self.met = len(outside.met) + len(list(self.folder.glob("fired_*")))
        if code == 0:
            return Outcome(self.scenario, self.run, self.state_dir)
        output = (self.folder / f"driver_{number}.log").read_text(errors="replace")
        raise Broken(f"the driver exited with {code} in start {number}: ...{output[-1500:]}")

    def check(self, outcome: Outcome) -> None:
        check.finished(outcome)
        check.no_process(self._mark)
        if not self._loaded:  # a worker that gets no CPU time may be declared lost and replaced
            check.nobody_lost(outcome)
        check.nothing_lost(outcome)
        check.rows_once(outcome)
        check.no_socket(outcome)
        check.no_shared_memory(outcome, self._shared_memory)
        check.no_file(outcome, self.temporary, self.state_dir)

    def clear(self, keep: bool) -> None:
        for pid in process_table.marked(self._mark):
            process_table.send(pid, signal.SIGKILL)
        process_table.wait_until(lambda: not process_table.marked(self._mark), 5)
        if self._mounted:
            if keep:
                shutil.copytree(self.run, self.folder / "results_kept", dirs_exist_ok=True)
            subprocess.run(["umount", "--lazy", str(self.results)], check=False)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _all_may_be_preempted(self) -> bool:
        """A run stops, and can be continued, if all of its workers are preempted."""
        doomed = {fault.rank for fault in self.scenario.faults if fault.kind == "term"}
        return len(doomed) >= self.scenario.workers

    def _start(self, number: int) -> int:
        name, value = self._mark.split("=")
        environment = os.environ | {
            name: value,
            "TRIREME_RESULTS": str(self.results),
            "TRIREME_STATE_DIR": str(self.state_dir),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])),
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
            "TRIREME_CHAOS_HANG_S": str(self._hang_s()),
        }
        if self.scenario.tls:
            environment["TRIREME_LISTEN"] = "tls://127.0.0.1:0"
        if self.scenario.elastic:
            environment["TRIREME_NUM_CPUS"] = str(self.scenario.most_workers)
        if self.scenario.cluster:
            environment |= self._cluster()
        if FREEZE in self.scenario.kinds():
            environment["TRIREME_LEASE_S"] = str(FREEZE_LEASE_S)
        with (self.folder / f"driver_{number}.log").open("wb") as log:
            nice = load.LOWEST if self._loaded else 0
            driver = load.start(self._command(), nice, stdout=log, stderr=log, env=environment, cwd=self.folder)
        try:
            return self._wait(driver)
        finally:
            driver.kill()
            driver.wait()

    def _cluster(self) -> dict[str, str]:
        """Two nodes on this machine. They do not see the results if this user may mount something over them."""
        hide = f"mount -t tmpfs none {self.results}"
        hidden = subprocess.run(["unshare", "--mount", "sh", "-c", hide], capture_output=True, check=False)
        private = f"unshare --mount sh -c '{hide} && exec \"$@\"' sh {{command}}"
        options = {
            "launcher": private if hidden.returncode == 0 else "local",
            "driver_host": "127.0.0.1",
            "num_cpus": (self.scenario.most_workers + 1) // 2,
        }
        return {
            "TRIREME_ENGINE": "hosts:a,b",
            "TRIREME_ENGINE_OPTIONS": json.dumps(options),
            "TRIREME_PYTHON": sys.executable,
        }

    def _hang_s(self) -> float:
        if self.scenario.kinds() & HANGS:
            return LOADED_HANG_S if self._loaded else HANG_S
        return LOADED_NO_HANG_S if self._loaded else NO_HANG_S

    def _wait(self, driver: subprocess.Popen[bytes]) -> int:
        timeout_s = LOADED_TIMEOUT_S if self._loaded else TIMEOUT_S
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._interrupted.is_set():
                raise Interrupted
            with contextlib.suppress(subprocess.TimeoutExpired):
                return driver.wait(0.5)
        self._write_stacks()
        raise Broken(f"the run did not end within {timeout_s:.0f} s; its stacks are in {self.folder}")

    def _command(self) -> list[str]:
        script = str(self.folder / "scenario.json")
        if self.scenario.language == "python":
            return [sys.executable, "-m", "chaos.training", script]
        if not PROGRAM.exists():
            raise Skipped(f"{PROGRAM} is not built")
        s = self.scenario
        told = {name: value for name, value in vars(s).items() if name not in ("name", "faults", "far", "cluster")}
        fields = [
            f"{name}={int(value or 0) if isinstance(value, bool | None) else value}" for name, value in told.items()
        ]
        faults = [f"{f.kind}:{f.phase}:{f.rank}:{f.step}:{f.delay_s}" for f in s.faults if f.inside]
        return [str(PROGRAM), f"folder={self.folder}", *fields, *faults]

    def _mount_small_disk(self) -> None:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.results)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            raise Skipped("mounting a small disk requires privileges")
        self._mounted = True

    def _write_stacks(self) -> None:
        """For debugging a run that did not end."""
        environment = os.environ | {"TRIREME_STATE_DIR": str(self.state_dir)}
        command = [check.COMMAND_LINE, "stack", str(self.run)]
        with (self.folder / "stacks.txt").open("w") as file:
            print(process_table.marked(self._mark), file=file, flush=True)
            subprocess.run(command, stdout=file, stderr=file, timeout=60, check=False, env=environment)


def temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="trireme_chaos_"))
