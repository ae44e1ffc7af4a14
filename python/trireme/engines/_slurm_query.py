"""What Slurm's commands say about jobs and nodes. Only formats that all versions print alike are parsed."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
from dataclasses import dataclass

from trireme.engines.adapter import Refused

# Commands that are started inside an allocation inherit its options as variables, which do not fit a step of one task.
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_CONF_SERVER")
_TIMEOUT_S = 60.0  # a restart of slurmctld takes less
_NOTICE_TIMEOUT_S = 10.0  # workers wait for it that are about to be killed


def environment() -> dict[str, str]:
    """This process's environment without the options of an enclosing job."""
    prefixes = ("SLURM_", "SLURMD_", "SRUN_", "SALLOC_")
    return {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(prefixes)}


def run(*argv: str, timeout_s: float = _TIMEOUT_S) -> str:
    try:
        done = subprocess.run(
            argv, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s
        )
    except FileNotFoundError:
        raise Refused(f"{argv[0]} is not in PATH: the slurm engine needs Slurm's commands on this machine") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{' '.join(argv)}: no answer within {timeout_s:g} s; is slurmctld running?") from None
    if done.returncode != 0:
        raise Refused(f"{' '.join(argv)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def fields(line: str) -> dict[str, str]:
    """`NodeName=n1 State=IDLE Reason=not well [root@...]` of `scontrol -o`. Values may contain spaces."""
    parts = re.split(r"(?:^|\s)([A-Za-z][\w:/]*)=", line.strip())
    return {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=True)}


def hostnames(nodelist: str) -> list[str]:
    """`n[1-2],gpu7` is ["n1", "n2", "gpu7"]."""
    return run("scontrol", "show", "hostnames", nodelist).split() if nodelist else []


@dataclass
class JobNode:
    """A job's part of one node."""

    name: str
    cpus: int
    gres: str  # `gpu:h100:4,fpga:1`; empty: none


def job_nodes(job: str) -> list[JobNode]:
    """The nodes of a running job, from its details: `Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:4(IDX:0-3)`."""
    nodes = []
    text = run("scontrol", "show", "job", "--details", "--oneliner", job)
    for names, cpu_ids, gres in re.findall(r"\sNodes=(\S+) CPU_IDs=(\S+) Mem=\S+ GRES=(\S*)", text):
        for name in hostnames(names):
            nodes.append(JobNode(name, _count(cpu_ids), without_details(gres)))
    if not nodes:
        raise Refused(f"Slurm job {job} has no nodes: {text.strip()[:300]}")
    return sorted(nodes, key=lambda node: _natural(node.name))


def _count(ids: str) -> int:
    """`0-3,8` is 5."""
    total = 0
    for part in ids.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _natural(name: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def gpus_of(gres: str) -> int:
    """`gpu:h100:4,fpga:1` has 4."""
    return sum(int(part.rpartition(":")[2]) for part in gres.split(",") if part.startswith("gpu:"))


def without_details(gres: str) -> str:
    """`gpu:h100:4(S:0-1)` without the sockets; empty if there is none."""
    return "" if gres == "(null)" else re.sub(r"\([^)]*\)", "", gres)


def gpu_type(gres: str) -> str | None:
    """`gpu:h100:4` has h100."""
    for part in gres.split(","):
        pieces = part.split(":")
        if pieces[0] == "gpu" and len(pieces) == 3:
            return pieces[1]
    return None


@dataclass
class NodeState:
    state: str  # `idle`, `alloc`, `drng`, `down`
    reason: str

    @property
    def lost(self) -> bool:
        # Not `alloc*`: a node that has not answered lately may only be busy. slurmctld calls it `down*` in time.
        return self.state.startswith("down")

    @property
    def draining(self) -> bool:
        return self.state.startswith(("drain", "drng"))


def node_states(names: list[str]) -> dict[str, NodeState]:
    found = {}
    for line in run("sinfo", "--noheader", "--Node", f"--nodes={','.join(names)}", "--format=%N|%t|%E").splitlines():
        name, state, reason = line.split("|", 2)
        found[name] = NodeState(state, "" if reason == "none" else reason)
    return found


def all_nodes(partition: str | None) -> list[dict[str, str]]:
    """The nodes of a partition, or of all, as `scontrol show node` describes them."""
    nodes = [fields(line) for line in run("scontrol", "show", "node", "--oneliner").splitlines() if "NodeName=" in line]
    return [node for node in nodes if partition is None or partition in node.get("Partitions", "").split(",")]


def default_partition() -> str | None:
    for line in run("sinfo", "--noheader", "--format=%P").splitlines():
        if line.strip().endswith("*"):
            return line.strip().rstrip("*")
    return None


def seconds_left(job: str) -> float | None:
    """Until Slurm ends a job that it preempts or whose time is over; None: it has not said so, or is ending it."""
    described = fields(run("scontrol", "show", "job", "--oneliner", job, timeout_s=_NOTICE_TIMEOUT_S).splitlines()[0])
    if described.get("JobState") != "RUNNING":
        return None
    ends = [_time(described.get("EndTime", ""))]
    if preempted := _time(described.get("PreemptTime", "")):
        show = ["scontrol", "show", "partition", "--oneliner", described["Partition"]]
        partition = fields(run(*show, timeout_s=_NOTICE_TIMEOUT_S))
        ends.append(preempted + float(partition.get("GraceTime", "0")))
    known = [end for end in ends if end]
    return max(0.0, min(known) - datetime.datetime.now().timestamp()) if known else None


def _time(text: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None  # `Unknown`, `None`, `N/A`
