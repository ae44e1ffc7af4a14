"""What runs on the nodes of a Ray cluster for the adapter. Their Ray processes import this module."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from typing import Any

from trireme._cli import program
from trireme.engines._local_command import describe

# Executes its arguments as a process that is killed with its parent. The kernel ties it to the parent's thread: that is
# the one that waits for it.
_LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.getppid() == int(sys.argv[1]) or sys.exit("the actor of this agent has ended")
os.execvp(sys.argv[2], sys.argv[2:])
"""


def tied_to_this_process(argv: list[str]) -> list[str]:
    """The command that runs `argv` until this process, or the thread that starts it, ends."""
    return [sys.executable, "-S", "-E", "-c", _LAUNCH, str(os.getpid()), *argv]


class AgentHost:
    """An actor that runs an agent. If the actor ends, the agent does too."""

    def run(self, argv: list[str], env: dict[str, str], ticket: str, python: str | None) -> tuple[str, str]:
        """How the agent has ended, and its last lines."""
        if os.path.basename(argv[0]).startswith("python"):
            argv = [python or sys.executable, *argv[1:]]
        # As trireme._cli does, without another start of Python.
        if argv[:3] == [sys.executable, "-m", "trireme._cli"] and (found := program()):
            argv, env = [found, *argv[3:]], {**env, "TRIREME_PYTHON": sys.executable}
        environment = {**os.environ, **env, "TRIREME_NODE_VARIABLES": ",".join(_of_the_runtime_environment())}
        # Ray hides the GPUs from actors without any. The driver shows each worker those of its bundle.
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
            if os.environ.get(name) == "":
                environment.pop(name, None)
        agent = subprocess.Popen(
            tied_to_this_process(argv),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert agent.stdin and agent.stdout
        try:
            agent.stdin.write(ticket + "\n")
            agent.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already: its exit code says more
        last = collections.deque((line.strip() for line in agent.stdout if line.strip()), maxlen=5)
        code = agent.wait()
        return describe(code), "; ".join(last)


def _of_the_runtime_environment() -> list[str]:
    """The variables that Ray has set for this actor. The workers get them from here, not from the driver."""
    import ray

    return sorted(ray.get_runtime_context().runtime_env.get("env_vars", {}))


class GpuHolder:
    """An actor that occupies the GPUs of a bundle, because Ray only tells an actor which ones these are."""

    def gpus(self) -> list[str]:
        import ray

        return [str(gpu) for gpu in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]


def look_at_nodes() -> tuple[dict[str, str], dict[str, int]]:
    """The hosts of living nodes, and the deadlines (milliseconds of the epoch, 0: none) of those that are drained."""
    import ray

    hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    return hosts, _draining()


def _draining() -> dict[str, int]:
    # Ray has no public way to ask; its own libraries use this one.
    from ray._private import state

    ask: Any = getattr(state.state, "get_draining_nodes", None)
    return dict(ask()) if ask else {}


def spare_imports() -> None:
    """Before it serializes anything, Ray imports pyarrow, pydantic and starlette, if they are installed, so that their
    objects can be arguments of actors. That takes a sixth of a second, and ours only get text."""
    addons: Any = sys.modules.get("ray.util.serialization_addons")
    if hasattr(addons, "apply"):
        addons.apply = lambda context: None


# Ray imports this module for an actor before it reads the actor's arguments.
spare_imports()
