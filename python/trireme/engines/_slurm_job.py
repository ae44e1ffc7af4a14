"""Jobs that hold nodes: the one around this process, and those that the adapter submits."""

from __future__ import annotations

import re
import secrets
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trireme.engines._local_command import LocalCommand, describe
from trireme.engines._slurm_query import JobNode, environment, gpus_of, job_nodes, run


def step(job: str, node: JobNode, argv: list[str], options: list[str]) -> list[str]:
    """The command that runs `argv` once on a node, with all that the job has there."""
    return [
        "srun",
        f"--jobid={job}",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node.name}",
        "--exact",
        # Also beside the step that runs the script itself, and beside a previous agent that is ending.
        "--overlap",
        f"--cpus-per-task={node.cpus}",
        "--cpu-bind=none",
        "--mem=0",  # all of the job's memory
        f"--gres={node.gres or 'none'}",
        "--mpi=none",
        "--export=ALL",
        "--unbuffered",
        *options,
        *argv,
    ]


# Nobody else would end the job of a driver that is killed with its node.
_UNTIL_THE_AGENT_ENDS = """
trap : INT TERM HUP  # notices are for the agent
"$@"
code=$?
scancel --quiet "$SLURM_JOB_ID"
exit $code
"""


def ending_its_job(argv: list[str]) -> list[str]:
    """The command that runs `argv` and then ends the job that it is in."""
    return ["sh", "-c", _UNTIL_THE_AGENT_ENDS, "sh", *argv]


class Job:
    """An allocation."""

    def __init__(self, number: str, step_options: list[str], *, of_a_gang: bool) -> None:
        self.number = number
        self.nodes = job_nodes(number)
        self._of_a_gang = of_a_gang
        self.gpus = self._find_gpus(step_options)

    def node_id(self, name: str) -> str:
        """A node that two gangs' jobs use is two nodes: the end of one job must not end the other's workers."""
        return f"{name}/{self.number}" if self._of_a_gang else name

    def node(self, name: str) -> JobNode:
        return next(node for node in self.nodes if node.name == name)

    def _find_gpus(self, step_options: list[str]) -> dict[str, list[str]]:
        """The ids of each node's GPUs. Only a step sees them: they depend on whether Slurm hides other devices."""
        with_gpus = [node for node in self.nodes if gpus_of(node.gres)]
        found: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        if not with_gpus:
            return found
        shell = ["sh", "-c", 'echo "trireme-gpus ${CUDA_VISIBLE_DEVICES:-$ROCR_VISIBLE_DEVICES}"']

        def probe(node: JobNode) -> list[str]:
            output = run(*step(self.number, node, shell, step_options))
            ids = re.search(r"^trireme-gpus (.*)$", output, re.MULTILINE)
            return [gpu for gpu in ids.group(1).split(",") if gpu] if ids else []

        with ThreadPoolExecutor(16) as pool:
            for node, gpus in zip(with_gpus, pool.map(probe, with_gpus), strict=True):
                found[node.name] = gpus
        return found


class JobGuard:
    """Cancels all jobs of this adapter when the adapter has ended, however it ended.

    It is a shell that waits for the end of its input. It finds the jobs by their name, so also those that the adapter
    had submitted without knowing their number yet.
    """

    _SCRIPT = """
    trap "" INT TERM HUP
    cat > /dev/null
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
      scancel --quiet --name="$0" && exit
      sleep 10
    done
    """

    def __init__(self, job_name: str | None) -> None:
        self.job_name = job_name or f"trireme-{secrets.token_hex(6)}"
        self._shell = subprocess.Popen(
            ["sh", "-c", self._SCRIPT, self.job_name],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def cancel_all(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


class Submission:
    """A job in the queue, and then one that holds nodes."""

    # With a command, salloc would hold the nodes while that runs. salloc 22.05 then spins if it gets a signal while the
    # command ends.
    def __init__(
        self,
        job_name: str,
        options: list[str],
        *,
        on_pending: Callable[[str], None],
        on_granted: Callable[[str], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._on_pending = on_pending
        self._on_granted = on_granted
        self._on_failed = on_failed
        self._number: str | None = None
        self._closed = threading.Event()
        self._salloc = LocalCommand(
            ["salloc", "--no-shell", "--no-kill", f"--job-name={job_name}", *options],
            environment(),
            on_line=self._read,
            on_exit=self._ended,
        )

    def _read(self, line: str) -> None:
        if found := re.search(r"(Pending|Granted) job allocation (\d+)", line):
            self._number = found.group(2)
            if found.group(1) == "Pending":
                self._on_pending(self._number)

    def _ended(self, returncode: int, lines: list[str]) -> None:
        if returncode == 0 and self._number:
            if self._closed.is_set():
                self._cancel()
            else:
                self._on_granted(self._number)
            return
        told = [line.removeprefix("salloc: ").removeprefix("error: ") for line in lines]
        self._on_failed("; ".join(told) or describe(returncode))

    def close(self) -> None:
        """Ends the job, or takes it out of the queue."""
        self._closed.set()
        self._salloc.terminate()
        if self._salloc.ended.is_set():
            threading.Thread(target=self._cancel).start()  # requests of the driver must not wait for slurmctld

    def _cancel(self) -> None:
        if self._number:
            run("scancel", "--quiet", self._number)
