"""The engine for Slurm: inside an allocation it uses the job's nodes; elsewhere it submits one job for each gang."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trireme.engines._local_command import LocalCommand, describe
from trireme.engines._route import address_towards
from trireme.engines._slurm_detached import jobs_of_driver
from trireme.engines._slurm_job import Job, JobGuard, Submission, ending_its_job, step
from trireme.engines._slurm_query import (
    JobNode,
    all_nodes,
    default_partition,
    environment,
    gpu_type,
    gpus_of,
    node_states,
    run,
    seconds_left,
    without_details,
)
from trireme.engines._slurm_request import JOB_OPTIONS, gang_options, job_options, slots_of
from trireme.engines.adapter import Adapter, AgentStart, GangRequest, Node, Refused

_OWN_OPTIONS = ("driver_args", "poll_s", "python", "salloc_args", "srun_args")
_END_TIMEOUT_S = 15


@dataclass
class _Gang:
    request: GangRequest
    submission: Submission | None = None
    timer: threading.Timer | None = None
    job: Job | None = None
    settled: bool = False  # reserved or failed
    released: bool = False


@dataclass
class _Agent:
    node: str
    command: LocalCommand
    stopped: bool = False
    notified: bool = False


class SlurmAdapter(Adapter):
    name = "slurm"

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._options: dict[str, Any] = {}
        self._allocation: Job | None = None
        self._detached = False  # this process runs in a job that only contains the driver
        self._job_guard: JobGuard | None = None
        self._gangs: dict[int, _Gang] = {}
        self._agents: dict[str, _Agent] = {}
        self._lost: set[str] = set()
        self._draining: set[str] = set()
        self._closing = threading.Event()

    # Requests.

    def start(self, options: dict[str, Any]) -> None:
        if argument := options.pop("argument", None):
            options.setdefault("partition", argument)  # --engine slurm:gpu
        unknown = sorted(set(options) - set(JOB_OPTIONS) - set(_OWN_OPTIONS))
        if unknown:
            known = ", ".join(sorted((*JOB_OPTIONS, *_OWN_OPTIONS)))
            raise Refused(f"unknown option of the slurm engine: {unknown[0]}. The options are: {known}")
        self._options = options
        job = os.environ.get("SLURM_JOB_ID")
        self._detached = job is not None and os.environ.get("TRIREME_SLURM_DRIVER") == job
        self.places = job is None or self._detached
        if job is not None and not self._detached:
            given = sorted(set(options) & set(JOB_OPTIONS))
            if given:
                raise Refused(
                    f"option {given[0]} of the slurm engine has no effect inside a job, and this process runs in job "
                    f"{job}; pass it to sbatch or salloc instead"
                )
            self._allocation = Job(job, self._step_options(), of_a_gang=False)
            address = address_towards(self._address_of(self._allocation.nodes[0].name))
        else:
            nodes = all_nodes(self._partition())
            if not nodes:
                raise Refused(f"partition {self._partition()} has no nodes: see sinfo")
            address = address_towards(nodes[0]["NodeAddr"])
            if job is not None and os.environ.get("SLURM_RESTART_COUNT"):
                run("scancel", "--quiet", f"--name={jobs_of_driver(job)}")  # of the driver that was lost
            self._job_guard = JobGuard(jobs_of_driver(job) if job else None)
        self.driver_host = address
        poll_s = float(options.get("poll_s", 30))
        if poll_s > 0:
            threading.Thread(target=self._watch, args=(poll_s,), name="sinfo", daemon=True).start()

    def nodes(self) -> list[Node]:
        if self._allocation:
            return [
                self._allocated(self._allocation, node)
                for node in self._allocation.nodes
                if node.name not in self._lost and node.name not in self._draining
            ]
        return [self._described(node) for node in all_nodes(self._partition())]

    def _allocated(self, job: Job, node: JobNode) -> Node:
        gpus = job.gpus[node.name]
        total = {"CPU": float(node.cpus), **({"GPU": float(len(gpus))} if gpus else {})}
        return Node(node.name, node.name, total, None, gpus, gpu_type(node.gres))

    def _described(self, node: dict[str, str]) -> Node:
        cpus, gpus = int(node["CPUTot"]), gpus_of(without_details(node["Gres"]))
        total = {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}
        down = node["State"].startswith(("DOWN", "DRAIN", "FAIL")) or "*" in node["State"]
        free = {"CPU": float(0 if down else cpus - int(node["CPUAlloc"]))}
        if gpus:
            used = re.search(r"gres/gpu=(\d+)", node.get("AllocTRES", ""))
            free["GPU"] = float(0 if down else gpus - int(used.group(1) if used else 0))
        return Node(node["NodeName"], node["NodeName"], total, free, None, gpu_type(without_details(node["Gres"])))

    def reserve(self, request: GangRequest) -> None:
        assert self._job_guard
        options = [*gang_options(request, self._partition()), *job_options(self._options)]
        gang = self._gangs[request.gang] = _Gang(request)
        if not request.optional:
            gang.timer = threading.Timer(request.timeout_s, self._give_up, [gang])
            gang.timer.daemon = True
            gang.timer.start()
        with self._guard:
            gang.submission = Submission(
                self._job_guard.job_name,
                options,
                on_pending=lambda job: self._pending(gang, job),
                on_granted=lambda job: self._granted(gang, job),
                on_failed=lambda why: self._failed(gang, why),
            )

    def release(self, gang: int) -> None:
        if known := self._gangs.pop(gang, None):
            known.released = True
            self._close(known)

    def start_agent(self, start: AgentStart) -> None:
        name, job = self._job_of(start.node)
        python = self._options.get("python")
        argv = [python, *start.argv[1:]] if python else start.argv
        if self._detached:
            argv = ending_its_job(argv)
        with self._guard:  # its end is handled after it is known
            command = LocalCommand(
                step(job.number, job.node(name), argv, ["--job-name=trireme-agent", *self._step_options()]),
                {**environment(), **start.env},
                on_line=lambda line: self._agent_printed(start.agent, line),
                on_exit=lambda returncode, lines: self._agent_ended(start.agent, returncode, lines),
                standard_input=start.ticket + "\n",
            )
            self._agents[start.agent] = _Agent(start.node, command)

    def stop_agent(self, agent: str) -> None:
        with self._guard:
            known = self._agents.get(agent)
        if known:
            known.stopped = True
            known.command.terminate()

    def time_left(self, node: str) -> float | None:
        return seconds_left(self._job_of(node)[1].number)

    def close(self) -> None:
        self._closing.set()
        with self._guard:
            agents = [agent.command for agent in self._agents.values()]
        if self._allocation:
            for agent in agents:
                agent.terminate()  # srun ends its step
            deadline = time.monotonic() + _END_TIMEOUT_S
            for agent in agents:
                agent.ended.wait(max(0.0, deadline - time.monotonic()))
        elif self._job_guard:
            for gang in list(self._gangs):
                self.release(gang)
            self._job_guard.cancel_all()
        for agent in agents:
            agent.kill()  # Slurm has ended the steps with their job, or ends a step that loses its srun

    # Gangs.

    def _step_options(self) -> list[str]:
        return [str(option) for option in self._options.get("srun_args", [])]

    def _pending(self, gang: _Gang, job: str) -> None:
        if gang.request.optional or gang.settled:
            return
        why = ""
        try:
            why = run("squeue", "--noheader", f"--jobs={job}", "--format=%r").strip()
        except Refused as refused:
            why = str(refused)
        reason = f" ({why})" if why not in ("", "None") else ""
        self.reserve_waiting(gang.request.gang, f"Slurm job {job} is in the queue{reason}")

    def _granted(self, gang: _Gang, number: str) -> None:
        try:
            job = Job(number, self._step_options(), of_a_gang=True)
            slots = slots_of(gang.request, job)
        except Refused as refused:
            why = str(refused)
            self._settle(gang, lambda: self.reserve_failed(gang.request.gang, why))
            self._close(gang)
            return
        gang.job = job
        self._settle(gang, lambda: self.reserved(gang.request.gang, slots))

    def _failed(self, gang: _Gang, why: str) -> None:
        self._settle(gang, lambda: self.reserve_failed(gang.request.gang, f"salloc: {why}"))

    def _settle(self, gang: _Gang, report: Callable[[], None]) -> None:
        """Reports how a request ended, once, and not if it has been released."""
        with self._guard:
            if gang.settled or gang.released:
                return
            gang.settled = True
        if gang.timer:
            gang.timer.cancel()
        report()

    def _give_up(self, gang: _Gang) -> None:
        why = f"Slurm has not started the job within {gang.request.timeout_s:g} s; see RunConfig(start_timeout_s=...)"
        self._settle(gang, lambda: self.reserve_failed(gang.request.gang, why))
        if not gang.job:
            self._close(gang)

    def _close(self, gang: _Gang) -> None:
        if gang.timer:
            gang.timer.cancel()
        with self._guard:
            submission = gang.submission
        if submission:
            submission.close()

    # Nodes and agents.

    def _partition(self) -> str | None:
        return self._options.get("partition") or default_partition()

    def _address_of(self, node: str) -> str:
        return next((n["NodeAddr"] for n in all_nodes(None) if n["NodeName"] == node), node)

    def _job_of(self, node: str) -> tuple[str, Job]:
        name, _, number = node.partition("/")
        jobs = [self._allocation] if self._allocation else [gang.job for gang in self._gangs.values()]
        for job in jobs:
            if job and (not number or job.number == number):
                return name, job
        raise Refused(f"node {node}: its Slurm job has been released")

    def _agent_printed(self, agent: str, line: str) -> None:
        # slurmstepd says so when it passes on a SIGTERM: before a preemption, a time limit, or a scancel.
        if "*** STEP" in line and "CANCELLED AT" in line:
            threading.Thread(target=self._notice, args=(agent,), daemon=True).start()
        elif found := re.search(r"error: Node failure on (\S+)", line):
            self._node_failed(found.group(1))

    def _notice(self, agent: str) -> None:
        with self._guard:
            known = self._agents.get(agent)
            if not known or known.stopped or known.notified:
                return
            known.notified = True
        try:
            _, job = self._job_of(known.node)
        except Refused:
            return  # the driver has released the job
        try:
            seconds = seconds_left(job.number)
        except Refused as refused:
            self.warn(f"Slurm ends the job on node {known.node}, but the deadline is unknown: {refused}")
            seconds = None
        if not known.command.ended.is_set():
            self.preempt(known.node, "Slurm preempts the job, or its time limit is reached", seconds)

    def _agent_ended(self, agent: str, returncode: int, lines: list[str]) -> None:
        with self._guard:
            known = self._agents.pop(agent, None)
        # Exit code 0 is not a success: srun also returns it when the node fails.
        said = f": {'; '.join(lines)}" if lines else ""
        self.agent_exited(agent, f"srun ended with {describe(returncode)}{said}")
        if known and not known.stopped and not self._closing.is_set():
            self._look(known.node)

    def _look(self, node: str) -> None:
        """Whether the end of an agent was the end of its node."""
        name = node.partition("/")[0]
        try:
            state = node_states([name]).get(name)
        except Refused as refused:
            self.warn(f"state of node {name}: {refused}")
            return
        if state and state.lost:
            self._lose(node, f"Slurm reports {name} as {state.state}{f': {state.reason}' if state.reason else ''}")

    def _node_failed(self, name: str) -> None:
        for node in self._nodes_in_use():
            if node.partition("/")[0] == name:
                self._lose(node, f"Slurm reports a failure of node {name}")

    def _lose(self, node: str, why: str) -> None:
        with self._guard:
            if node in self._lost:
                return
            self._lost.add(node)
        self.node_lost(node, why)

    def _nodes_in_use(self) -> list[str]:
        if self._allocation:
            return [node.name for node in self._allocation.nodes]
        jobs = [gang.job for gang in list(self._gangs.values()) if gang.job]
        return [job.node_id(node.name) for job in jobs for node in job.nodes]

    def _watch(self, poll_s: float) -> None:
        while not self._closing.wait(poll_s):
            nodes = self._nodes_in_use()
            names = sorted({node.partition("/")[0] for node in nodes})
            try:
                states = node_states(names) if names else {}
            except Refused:
                continue  # slurmctld restarts: the nodes continue without it
            for node in nodes:
                state = states.get(node.partition("/")[0])
                if state:
                    self._compare(node, state.lost, state.draining, state.state, state.reason)

    def _compare(self, node: str, lost: bool, draining: bool, state: str, reason: str) -> None:
        because = f": {reason}" if reason else ""
        if lost:
            self._lose(node, f"Slurm reports it as {state}{because}")
            return
        if node in self._lost:
            self._lost.discard(node)
            self.room_grew()
        if draining and node not in self._draining:
            self._draining.add(node)
            self.preempt(node, f"Slurm drains the node{because}")
        elif not draining and node in self._draining:
            self._draining.discard(node)
            self.room_grew()


if __name__ == "__main__":
    SlurmAdapter().serve()
