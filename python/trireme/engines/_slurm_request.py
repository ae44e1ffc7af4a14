"""A gang as the options of a job, and the nodes that Slurm has chosen as the places of its bundles."""

from __future__ import annotations

import math
from typing import Any

from trireme.engines._slurm_job import Job
from trireme.engines._slurm_query import all_nodes, gpus_of, without_details
from trireme.engines.adapter import GangRequest, Refused, Slot

# Options of salloc that users may set by name.
JOB_OPTIONS = (
    "account",
    "comment",
    "constraint",
    "exclude",
    "exclusive",
    "gres",
    "licenses",
    "mem",
    "mem_per_cpu",
    "mem_per_gpu",
    "nice",
    "nodelist",
    "partition",
    "qos",
    "reservation",
    "signal",
    "switches",
    "time",
)


def job_options(given: dict[str, Any]) -> list[str]:
    """The user's options as those of salloc. True is a flag; None and False are left out."""
    options = []
    for name in JOB_OPTIONS:
        value = given.get(name)
        if value is True:
            options.append(f"--{name.replace('_', '-')}")
        elif value is not None and value is not False:
            options.append(f"--{name.replace('_', '-')}={value}")
    # A minute for a last checkpoint before the time is over.
    if given.get("time") and not given.get("signal"):
        options.append("--signal=TERM@60")
    return [*options, *map(str, given.get("salloc_args", []))]


def gang_options(request: GangRequest, partition: str | None) -> list[str]:
    """One task per bundle. Refuses what Slurm cannot reserve."""
    bundle = request.bundles[0]
    if any(other != bundle for other in request.bundles):
        raise Refused("the slurm engine reserves equal bundles only; give all workers the same resources")
    if request.label_selector and any(request.label_selector):
        raise Refused("Slurm has no labels: use the engine option constraint, which selects nodes by feature")
    count = len(request.bundles)
    cpus = max(1, math.ceil(bundle.get("CPU", 1)))
    options = [f"--ntasks={count}", f"--cpus-per-task={cpus}"]
    gpus = bundle.get("GPU", 0)
    if gpus != int(gpus):
        raise Refused(
            f"{gpus:g} GPUs per worker: Slurm allocates whole GPUs. Run the script inside a job, where several "
            "workers can share a GPU, or request whole ones"
        )
    if gpus:
        kind = f"{request.accelerator_type}:" if request.accelerator_type else ""
        options.append(f"--gpus-per-task={kind}{int(gpus)}")
    if memory := bundle.get("memory"):
        options.append(f"--mem-per-cpu={math.ceil(memory / cpus / 2**20)}M")
    for name in sorted(set(bundle) - {"CPU", "GPU", "memory"}):
        raise Refused(f"resource {name}: the slurm engine knows CPU, GPU and memory; use the engine option gres")
    options += {
        "PACK": ["--distribution=block:block,Pack"],
        "SPREAD": ["--spread-job"],
        "STRICT_PACK": ["--nodes=1"],
        "STRICT_SPREAD": [f"--nodes={count}", "--ntasks-per-node=1"],
    }[request.strategy]
    _check_capacity(request, partition, cpus, int(gpus))
    return [*options, "--immediate=1"] if request.optional else options


def _check_capacity(request: GangRequest, partition: str | None, cpus: int, gpus: int) -> None:
    """Slurm queues some jobs that its nodes can never run."""
    nodes = all_nodes(partition)
    fit = [
        min(int(n["CPUTot"]) // cpus, gpus_of(without_details(n["Gres"])) // gpus if gpus else 1 << 30) for n in nodes
    ]
    strict = {"STRICT_PACK": max(fit, default=0), "STRICT_SPREAD": sum(map(bool, fit))}
    room = strict.get(request.strategy, sum(fit))
    if room >= len(request.bundles):
        return
    asked = ", ".join(f"{name}: {amount:g}" for name, amount in sorted(request.bundles[0].items()))
    has = [f"{n['NodeName']} ({n['CPUTot']} CPUs, {without_details(n['Gres']) or 'no gres'})" for n in nodes]
    more = f" and {len(has) - 8} more" if len(has) > 8 else ""
    raise Refused(
        f"no room for more than {room} workers: asked for {len(request.bundles)} x {{{asked}}} ({request.strategy}), "
        f"partition {partition} has {', '.join(has[:8])}{more}"
    )


def slots_of(request: GangRequest, job: Job) -> list[Slot]:
    """Places the bundles on the nodes that Slurm has chosen. Every bundle gets its own devices."""
    bundle = request.bundles[0]
    cpus, each = max(1, math.ceil(bundle.get("CPU", 1))), int(bundle.get("GPU", 0))
    fit = [node.cpus // cpus for node in job.nodes]
    if each:
        fit = [min(n, len(job.gpus[node.name]) // each) for n, node in zip(fit, job.nodes, strict=True)]
    counts = _fill(len(request.bundles), fit, spread="SPREAD" in request.strategy)
    if sum(counts) < len(request.bundles):
        has = ", ".join(f"{node.name} {node.cpus} CPUs, GPUs {job.gpus[node.name]}" for node in job.nodes)
        raise Refused(f"Slurm job {job.number} has room for {sum(fit)} of {len(request.bundles)} workers: {has}")
    return [
        Slot(job.node_id(node.name), node.name, job.gpus[node.name][task * each : (task + 1) * each])
        for node, count in zip(job.nodes, counts, strict=True)
        for task in range(count)
    ]


def _fill(count: int, fit: list[int], *, spread: bool) -> list[int]:
    """How many bundles each node gets: as many as fit, node by node, or one each in turn."""
    if not spread:
        counts: list[int] = []
        for room in fit:
            counts.append(min(room, count - sum(counts)))
        return counts
    counts = [0] * len(fit)
    while sum(counts) < min(count, sum(fit)):
        for node, room in enumerate(fit):
            if counts[node] < room and sum(counts) < count:
                counts[node] += 1
    return counts
