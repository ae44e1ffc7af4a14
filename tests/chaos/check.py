"""The invariants that must hold after every scenario."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import trireme
from chaos import process_table, sharded
from chaos.outside import events_of
from chaos.scenario import FREEZE, HARMLESS, NODE_KILL, STEPS, Scenario

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TRIREME_BUILD_DIR", ROOT / "build/release"))
COMMAND_LINE = os.environ.get("TRIREME_CLI", str(BUILD / "src/cli/trireme"))


class Broken(Exception):
    """An invariant that does not hold."""


def require(holds: object, what: str) -> None:
    if not holds:
        raise Broken(what)


class Outcome:
    """The result of a run, read from its folder after it has ended."""

    def __init__(self, scenario: Scenario, run: Path, state_dir: Path) -> None:
        self.scenario, self.run = scenario, run
        self.events = events_of(scenario, run, state_dir).new()
        self.restarts = sum(event["event"] == "attempt_started" for event in self.events) - 1
        self.starts = sum(event["event"] == "run_started" for event in self.events)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def committed(self) -> list[str]:
        """In the order of their commits, without removed ones.

        A driver may be killed after it has written a manifest and before it has logged the commit. The next start
        names that checkpoint.
        """
        names: dict[str, int | None] = {}
        for event in self.events:
            name = event.get("name", "")
            if event["event"] == "checkpoint_committed":
                names.pop(name, None)
                names[name] = event["index"]
            elif event["event"] == "run_started" and event.get("checkpoint"):
                resumed = Path(event["checkpoint"]).name
                names[resumed] = names.pop(resumed, None)
            elif event["event"] == "checkpoint_removed" and event.get("index") in (None, names.get(name)):
                names.pop(name, None)
        return list(names)

    def final_state(self) -> dict[str, Any]:
        """The state of any rank: all ranks have the same."""
        folder = self.run / self.committed()[-1]
        if self.scenario.checkpoint == "sharded":
            try:
                return self._whole(folder)
            except (OSError, ValueError, RuntimeError, sharded.Incomplete) as error:
                raise Broken(f"the last checkpoint is incomplete: {error}") from error
        for part in sorted(folder.glob("part_*.json")):
            return dict(json.loads(part.read_text()))
        return trireme.load_state(folder)

    def _whole(self, folder: Path) -> dict[str, Any]:
        if self.scenario.language == "python":
            return sharded.whole(str(folder))
        world = trireme.load_state(folder, rank=0)["world"]
        return sharded.agree(str(folder), [trireme.load_state(folder, rank=rank) for rank in range(world)])

    def final_loss(self) -> float:
        last = max(self.of_kind("report"), key=lambda event: (event["attempt"], event["index"]))
        return float(last["metrics"]["loss"])

    def pids(self) -> set[int]:
        return {event["pid"] for event in self.events if event.get("pid")}


def finished(outcome: Outcome) -> None:
    require(outcome.events and outcome.events[-1]["event"] == "run_finished", "the last event is not run_finished")
    require(outcome.events[-1]["outcome"] == "finished", f"the outcome is {outcome.events[-1]['outcome']}")


def same_result(outcome: Outcome, undisturbed: Outcome) -> None:
    """Each step counted exactly once, and the result is that of an undisturbed training."""
    state, expected = outcome.final_state(), undisturbed.final_state()
    require(state["next"] == STEPS, f"the last checkpoint is of step {state['next']}")
    contributions = [int(count) for count in state["applied"]]
    if not (outcome.scenario.elastic and outcome.scenario.trainer == "torch"):
        require(contributions == [int(count) for count in expected["applied"]], f"steps were counted {contributions}")
        pairs = zip(_numbers(state["weight"]), _numbers(expected["weight"]), strict=True)
        require(all(map(lambda pair: math.isclose(*pair, rel_tol=1e-12), pairs)),
                f"the weights are {state['weight']}, expected {expected['weight']}")  # fmt: skip
        require(math.isclose(outcome.final_loss(), undisturbed.final_loss(), rel_tol=1e-12), "the final loss differs")
    require(all(contributions), f"steps were counted {contributions}")
    returned = outcome.events[-1].get("return_value")
    require(returned == contributions, f"the function returned {returned}, the last checkpoint has {contributions}")


def _numbers(weight: Any) -> list[float]:
    return list(weight) if isinstance(weight, list) else [weight]


def nothing_lost(outcome: Outcome) -> None:
    command = [COMMAND_LINE, "checkpoints", str(outcome.run), "--verify", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    require(told.returncode == 0, f"`trireme checkpoints --verify`: {told.stderr}{told.stdout}")
    listed = {Path(each["path"]).name: each["problem"] for each in json.loads(told.stdout)}
    # A killed driver may have removed a checkpoint without recording it.
    kept = outcome.scenario.num_to_keep or len(outcome.committed())
    # If folders cannot be moved, an older checkpoint is deleted when its name is reused.
    cannot_move = outcome.scenario.far or outcome.scenario.cluster
    kept = 1 if cannot_move and outcome.scenario.slots else kept
    for name in outcome.committed()[-kept:]:
        require(name in listed, f"{name} was committed but is missing; found {sorted(listed)}")
        require(not listed[name], f"{name} is damaged: {listed[name]}")


def rows_once(outcome: Outcome) -> None:
    if outcome.scenario.trainer != "data":
        return
    command = [COMMAND_LINE, "data", "verify", str(outcome.run), "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    require(told.returncode == 0, f"`trireme data verify`: {told.stderr}{told.stdout}")
    seen = {each["epoch"]: (each["seen"], each["size"]) for each in json.loads(told.stdout)}
    # Ten steps, four per epoch: the training ends in the middle of the third epoch.
    require(seen == {0: (47, 47), 1: (47, 47), 2: (24, 47)}, f"rows were read {seen}")


def nobody_lost(outcome: Outcome) -> None:
    """A run that was only frozen or slow continues without losing a worker."""
    if FREEZE in outcome.scenario.kinds() <= HARMLESS:
        lost = [event["message"] for event in outcome.of_kind("attempt_failed")]
        require(not lost, f"workers were lost: {lost}")


def no_process(mark: str) -> None:
    gone = process_table.wait_until(lambda: not process_table.marked(mark), 60)
    require(gone, f"processes remain: {process_table.marked(mark)}")


def no_socket(outcome: Outcome) -> None:
    names = [f"@trireme-{event['id']}" for event in outcome.of_kind("run_started")]
    left = [line for line in Path("/proc/net/unix").read_text().splitlines() if any(name in line for name in names)]
    require(not left, f"sockets remain: {left}")


def no_shared_memory(outcome: Outcome, before: set[str]) -> None:
    ours = [str(pid) for pid in outcome.pids()] + [event["id"] for event in outcome.of_kind("run_started")]
    # Match complete numbers only: names of concurrent scenarios may contain them.
    ours_re = re.compile(rf"(?<![0-9a-f])({'|'.join(ours)})(?![0-9a-f])")
    left = [name for name in set(os.listdir("/dev/shm")) - before if ours_re.search(name)]
    require(not left, f"shared memory remains: {left}")


def no_file(outcome: Outcome, temporary: Path, state_dir: Path) -> None:
    # Torch's own caches may remain, and so may the empty folder that contained our files.
    left = [path.name for path in temporary.iterdir() if not path.name.startswith(("torchinductor_", "trireme-"))]
    # The next agent of a node removes the folder of a killed one.
    killed = NODE_KILL in outcome.scenario.kinds()
    ours = [path for path in temporary.glob("trireme-*") if not (killed and path.name.startswith("trireme-agent-"))]
    left += [str(path) for folder in ours for path in folder.glob("*/*")]
    require(not left, f"temporary files remain: {left}")
    held = list(state_dir.glob("capacity/*/*.json"))
    require(not held, f"reservations remain: {held}")
    last = outcome.of_kind("run_started")[-1]["id"]
    entry = json.loads((state_dir / "runs" / f"{last}.json").read_text())
    require("secret" not in entry and "address" not in entry, "the registry still has the run's secret")
    ours = (".tmp", ".trireme_tmp", ".trireme_lease")
    hidden = [path.name for path in outcome.run.rglob("*") if path.name.startswith(ours)]
    require(not hidden, f"unfinished files remain in the run folder: {hidden}")
