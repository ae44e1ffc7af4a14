"""A scenario is a small training and the faults injected into it. It is identified by a seed and a number."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

STEPS = 10
CHECKPOINT_EVERY = 2

# Faults that a worker inflicts on itself, at an exact position in the training function.
INSIDE = ["kill", "stop", "exception", "exit", "os_exit", "hang", "hang_native", "slow", "term"]
INSIDE_PHASES = ["rendezvous", "step", "report", "upload", "shutdown"]
# Faults injected from outside, when the event log shows the phase.
OUTSIDE = ["kill", "stop", "term", "cut", "pulse", "zygote_kill", "driver_kill", "driver_term", "driver_int",
           "driver_pause", "fuzz"]  # fmt: skip
OUTSIDE_PHASES = ["start", "rendezvous", "step", "upload", "commit", "restart", "shutdown", "instant"]
IN_A_RESIZE = ["kill", "stop", "term", "cut", "driver_kill", "driver_term", "driver_pause"]
# These have separate scenarios.
DISK_FULL, CAPACITY, FREEZE = "disk_full", "capacity", "freeze"
# Only in a cluster: the agent of a node is killed, with everything that it has started.
NODE_KILL = "node_kill"
# A frozen run continues after its lease has expired. Short, to avoid waiting for the default of 30 s.
FREEZE_LEASE_S, FREEZE_S = 5.0, 6.5
FREEZE_PHASES = ["start", "rendezvous", "step", "upload", "commit", "restart", "instant"]
# A rank that these befall reports no more; the run finds it by its silence.
HANGS = {"hang", "hang_native"}
# These do not cost a worker.
HARMLESS = {FREEZE, "slow"}
# Faults that would only affect the upload's thread. C++ programs have no interpreter and no warm process.
NOT_IN_UPLOAD = {"exception", "exit", "hang", "slow"}
NOT_IN_CPP = {"hang_native", "zygote_kill"}
# After these the same script is started again, as a user would.
ENDS_THE_DRIVER = {"driver_kill", "driver_term", "driver_int", DISK_FULL}
# Bugs were reported with scenario numbers of these seeds: their scenarios do not get later ingredients.
FIRST_INGREDIENTS_ONLY = {31337}


@dataclass
class Fault:
    kind: str
    phase: str
    inside: bool = False
    rank: int = 0
    step: int = 0
    delay_s: float = 0.0
    # Duration of a stop, a pause or a full disk; the new number of CPUs for a change of capacity.
    amount: float = 0.0

    def __str__(self) -> str:
        where = f"{self.phase} {self.step}" if self.phase in ("step", "report", "upload", "commit") else self.phase
        return f"{self.kind} in {where} of rank {self.rank}" + (" (inside)" if self.inside else "")


@dataclass
class Scenario:
    name: str
    language: str = "python"
    trainer: str = "plain"
    workers: int = 2
    most_workers: int = 2
    checkpoint: str = "state"  # or "folder", or "sharded": a rank resumes from its own part
    mode: str = "SYNC"  # or "ASYNC"
    only_rank_zero: bool = False
    keep_in_memory: bool = False
    warm_restart: bool = True
    auto_restart: bool = False  # neither: the default
    tls: bool = False
    num_to_keep: int | None = None
    slots: bool = False  # two names for all checkpoints, used in turn
    reporters: int = 1  # threads that report at the same time
    far: bool = False  # checkpoints in remote storage
    cluster: bool = False  # on two nodes that do not see the results
    padding: int = 0  # additional bytes, so that storing the state takes a while
    pace_s: float = 0.02  # duration of a step
    faults: list[Fault] = field(default_factory=list)

    @property
    def elastic(self) -> bool:
        return self.workers != self.most_workers

    def kinds(self) -> set[str]:
        return {fault.kind for fault in self.faults}

    def undisturbed(self) -> Scenario:
        """The same training without faults."""
        return Scenario(f"undisturbed-{self.language}-{self.trainer}-{self.most_workers}", self.language, self.trainer,
                        self.most_workers, self.most_workers)  # fmt: skip

    def describe(self) -> str:
        size = f"{self.workers}-{self.most_workers}" if self.elastic else str(self.workers)
        ways = [self.checkpoint, self.mode.lower()]
        flags = ("only_rank_zero", "keep_in_memory", "tls", "far", "cluster")
        ways += [name for name in flags if getattr(self, name)]
        ways += [f"keep {self.num_to_keep}"] if self.num_to_keep else []
        ways += ["slots"] if self.slots else []
        ways += [f"{self.reporters} reporters"] if self.reporters > 1 else []
        ways += [f"{self.padding >> 20} MB"] if self.padding else []
        ways += ["auto"] if self.auto_restart else [] if self.warm_restart else ["cold"]
        faults = "; ".join(map(str, self.faults)) or "nothing"
        return f"{self.language} {self.trainer} x{size} {','.join(ways)}: {faults}"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))


def read(path: str | Path) -> Scenario:
    fields: dict[str, Any] = json.loads(Path(path).read_text())
    return Scenario(**{**fields, "faults": [Fault(**fault) for fault in fields["faults"]]})


def make(seed: int, number: int, torch: bool = True) -> Scenario:
    """Depends only on the seed and the number."""
    dice = random.Random(f"{seed}/{number}")
    language = dice.choices(["python", "cpp"], [3, 2])[0]
    kind = dice.choices(["plain", "torch" if torch else "plain", "data"], [2, 1, 1])[0]
    workers = dice.choice([1, 2, 2, 2, 3, 6])
    made = Scenario(
        name=f"{seed}-{number}",
        language=language,
        trainer=kind if language == "python" else "plain",
        workers=workers,
        most_workers=workers,
        checkpoint=dice.choice(["state", "state", "folder"]) if language == "python" else "state",
        mode=dice.choice(["SYNC", "ASYNC"]),
        only_rank_zero=dice.random() < 0.3,
        keep_in_memory=dice.random() < 0.25,
        warm_restart=dice.random() < 0.8,
        tls=dice.random() < 0.2,
        num_to_keep=dice.choice([None, None, 1, 2]),
        padding=dice.choice([0, 0, 8 << 20]),
    )
    special = dice.random()
    if special < 0.08:
        made.padding = 0  # the disk is small
        made.trainer = made.trainer.replace("data", "plain")  # an incomplete log of samples proves nothing
        made.faults = [Fault(DISK_FULL, "step", step=dice.randrange(1, STEPS - 2), amount=dice.uniform(0.2, 1.5))]
    elif special < 0.22:
        _make_elastic(made, dice)
    elif special < 0.30:
        _make_preemption(made, dice)
    else:
        made.faults = [_fault(made, dice) for _ in range(dice.choice([1, 1, 1, 2, 2, 3, 6]))]
        if any(fault.phase == "restart" for fault in made.faults):
            made.faults.append(Fault("kill", "step", True, dice.randrange(workers), dice.randrange(STEPS - 1)))
        if "fuzz" in made.kinds():
            made.pace_s = 0.1
    if seed not in FIRST_INGREDIENTS_ONLY:
        _add_ingredients(made, random.Random(f"{seed}/{number}/later"))
    return made


def in_cluster(scenario: Scenario) -> Scenario:
    """The same training on two nodes. Faults that only exist on one machine become the loss of a node."""
    dice = random.Random(f"{scenario.name}/cluster")

    def node_kill() -> Fault:
        return Fault(NODE_KILL, "step", rank=dice.randrange(2), step=dice.randrange(STEPS - 3))

    of_one_machine = {DISK_FULL, CAPACITY, "zygote_kill"}
    faults = [node_kill() if fault.kind in of_one_machine else fault for fault in scenario.faults]
    if dice.random() < 0.5 and NODE_KILL not in {fault.kind for fault in faults}:
        faults.append(node_kill())
    workers = scenario.most_workers  # the capacity of nodes does not change
    return replace(scenario, cluster=True, tls=False, far=False, workers=workers, faults=faults)


def _add_ingredients(made: Scenario, dice: random.Random) -> None:
    """Uses a separate generator, so that earlier draws do not change."""
    # Fewer torch scenarios: importing torch in all processes costs as much as twenty other scenarios.
    if dice.random() < 0.5 or made.workers > 3:
        made.trainer = made.trainer.replace("torch", "plain")
    if made.language == "cpp" and dice.random() < 0.3 and DISK_FULL not in made.kinds():
        made.trainer = "data"
    if dice.random() < 0.35:
        made.checkpoint, made.only_rank_zero = "sharded", False
    if dice.random() < 0.3:
        made.slots, made.num_to_keep = True, dice.choice([None, 1, 1, 2, 2])
    if dice.random() < 0.15:
        made.reporters = 2
    made.auto_restart = dice.random() < 0.5
    if made.language == "python" and made.trainer == "plain" and DISK_FULL not in made.kinds():
        made.far = dice.random() < 0.2
    special = dice.random()
    if made.elastic or DISK_FULL in made.kinds():
        return
    if special < 0.06:
        step = dice.randrange(STEPS // CHECKPOINT_EVERY) * CHECKPOINT_EVERY + CHECKPOINT_EVERY - 1
        freeze = Fault(FREEZE, dice.choice(FREEZE_PHASES), step=step, delay_s=dice.uniform(0, 0.05), amount=FREEZE_S)
        made.faults = [freeze] if dice.random() < 0.5 and freeze.phase != "restart" else [*made.faults, freeze]
    elif special < 0.16:
        _make_preemption_in_checkpoint(made, dice)


def _make_preemption_in_checkpoint(made: Scenario, dice: random.Random) -> None:
    """One or more workers are preempted while they store a checkpoint; some die before it is stored."""
    step = dice.randrange(STEPS // CHECKPOINT_EVERY - 1) * CHECKPOINT_EVERY + CHECKPOINT_EVERY - 1
    doomed = dice.sample(range(made.workers), dice.choice([1, 1, min(2, made.workers)]))
    made.padding = dice.choice([1 << 20, 8 << 20, 32 << 20])
    made.faults = [
        Fault("term", "upload", True, rank, step, delay_s=dice.choice([0.0, 0.005, 0.02])) for rank in doomed
    ]
    if dice.random() < 0.7:
        kind, delay = dice.choice(["kill", "os_exit", "stop"]), dice.choice([0.01, 0.03, 0.1])
        made.faults.append(Fault(kind, "upload", True, doomed[0], step, delay_s=delay))


def _make_elastic(made: Scenario, dice: random.Random) -> None:
    made.workers, made.most_workers, made.pace_s = 1, dice.choice([2, 3]), 0.15
    down = Fault(CAPACITY, "step", step=dice.randrange(1, 4), amount=1)
    up = Fault(CAPACITY, "step", step=dice.randrange(5, 8), amount=made.most_workers)
    made.faults = [down, up]
    if dice.random() < 0.6:
        made.faults.append(
            Fault(dice.choice(IN_A_RESIZE), "resize", rank=dice.randrange(2), delay_s=dice.uniform(0, 0.1), amount=4.0)
        )


def _make_preemption(made: Scenario, dice: random.Random) -> None:
    """A worker is preempted and dies at the worst moment afterwards."""
    rank, step = dice.randrange(made.workers), dice.randrange(0, STEPS - 2)
    kind, phase = dice.choice(["kill", "os_exit", "stop"]), dice.choice(["step", "report", "upload"])
    later = min(STEPS - 1, (step + dice.randrange(3)) // CHECKPOINT_EVERY * CHECKPOINT_EVERY + 1)
    made.faults = [
        Fault("term", "step", True, rank, step),
        Fault(kind, phase, True, rank, later, delay_s=dice.choice([0.0, 0.005, 0.02])),
    ]
    made.padding = dice.choice([0, 32 << 20])


def _fault(scenario: Scenario, dice: random.Random) -> Fault:
    cpp = scenario.language == "cpp"
    while True:
        inside = dice.random() < 0.6
        kind, phase = (
            dice.choice(INSIDE if inside else OUTSIDE),
            dice.choice(INSIDE_PHASES if inside else OUTSIDE_PHASES),
        )
        if not ((cpp and kind in NOT_IN_CPP) or (inside and phase == "upload" and kind in NOT_IN_UPLOAD)):
            break
    step = dice.randrange(0, STEPS - 1)
    if phase in ("upload", "commit"):
        step = step // CHECKPOINT_EVERY * CHECKPOINT_EVERY + CHECKPOINT_EVERY - 1
    return Fault(
        kind,
        phase,
        inside,
        rank=dice.randrange(scenario.workers),
        step=step,
        delay_s=dice.uniform(0, 1.5 if phase == "instant" else 0.03),
        amount=dice.choice([0.3, 1.0, 4.0]),
    )


def fixed() -> list[Scenario]:
    """Every kind of fault once, in few scenarios. `make test` runs them."""

    def one(name: str, *faults: Fault, **settings: Any) -> Scenario:
        return Scenario(f"fixed-{name}", faults=list(faults), **settings)

    return [
        one("kill-upload", Fault("kill", "upload", True, 1, 3), Fault("kill", "commit", rank=0, step=7), mode="ASYNC"),
        one("stop-cut", Fault("stop", "step", True, 1, 2), Fault("cut", "step", rank=0, step=6), keep_in_memory=True),
        one("exits", Fault("exception", "step", True, 0, 2), Fault("exit", "report", True, 1, 4),
            Fault("os_exit", "shutdown", True, 0), checkpoint="folder"),
        one("hangs", Fault("hang", "step", True, 1, 2), Fault("hang_native", "step", True, 1, 6), checkpoint="folder"),
        one("driver-kill", Fault("driver_kill", "step", step=4), Fault("zygote_kill", "start"), tls=True),
        one("driver-term", Fault("driver_term", "step", step=3), Fault("slow", "step", True, 1, 1),
            Fault("pulse", "step", step=5, amount=0.3)),
        one("term", Fault("term", "step", True, 1, 3), Fault("driver_pause", "step", step=6, amount=0.3)),
        one("term-upload", Fault("term", "step", True, 0, 3), Fault("kill", "upload", True, 0, 3), mode="ASYNC",
            only_rank_zero=True, padding=32 << 20),
        one("data", Fault("kill", "step", True, 1, 5), Fault("exception", "report", True, 0, 7), trainer="data",
            workers=3, most_workers=3),
        one("data-elastic", Fault(CAPACITY, "step", step=2, amount=1), Fault(CAPACITY, "step", step=6, amount=3),
            trainer="data", workers=1, most_workers=3, pace_s=0.15),
        one("disk-full", Fault(DISK_FULL, "step", step=3, amount=0.5)),
        one("elastic", Fault(CAPACITY, "step", step=2, amount=1), Fault(CAPACITY, "step", step=6, amount=2),
            Fault("kill", "resize"), workers=1, most_workers=2, pace_s=0.15),
        one("fuzz", Fault("fuzz", "rendezvous"), pace_s=0.1),
        one("torch", Fault("kill", "step", True, 1, 3), trainer="torch", auto_restart=True),
        one("cpp", Fault("kill", "step", True, 1, 3), Fault("stop", "report", True, 0, 5),
            Fault("exception", "step", True, 1, 7), language="cpp"),
        one("sharded-term", Fault("term", "step", True, 1, 4), Fault("kill", "upload", True, 1, 5, delay_s=0.005),
            checkpoint="sharded", mode="ASYNC", num_to_keep=1, workers=3, most_workers=3, padding=8 << 20,
            auto_restart=True),
        one("slots", Fault("kill", "upload", True, 1, 5), Fault("driver_kill", "commit", step=7), checkpoint="sharded",
            slots=True, num_to_keep=1, mode="ASYNC"),
        one("far", Fault("kill", "upload", True, 1, 3), Fault("driver_kill", "commit", step=5), far=True, slots=True,
            num_to_keep=1, mode="ASYNC", auto_restart=True),
        one("freeze", Fault(FREEZE, "step", step=3, amount=FREEZE_S), reporters=2, trainer="data"),
        one("cpp-data", Fault("kill", "step", True, 1, 5), Fault("term", "upload", True, 0, 7), language="cpp",
            trainer="data", checkpoint="sharded", slots=True, num_to_keep=2, reporters=2),
        in_cluster(one("cluster", Fault("kill", "upload", True, 1, 3), Fault(NODE_KILL, "step", rank=1, step=6),
                       checkpoint="sharded", trainer="data", workers=3, most_workers=3)),
        in_cluster(one("cluster-cpp", Fault(NODE_KILL, "upload", rank=0, step=5), language="cpp")),
        one("cpp-driver", Fault("driver_kill", "commit", step=3), Fault("hang", "step", True, 0, 6),
            language="cpp", mode="ASYNC"),
    ]  # fmt: skip
