"""`hosts:a,b`: starts one agent on each of these hosts, through ssh, mpirun or any other command."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import threading
from typing import Any

from trireme.engines._local_command import describe
from trireme.engines._program import Program
from trireme.engines._route import address_towards
from trireme.engines.adapter import Adapter, AgentStart, Node, Refused

# {command} becomes the words of the command, {command_line} one word that a shell on the host splits again.
LAUNCHERS = {
    "ssh": "ssh -o BatchMode=yes -o ConnectTimeout=10 {host} {command_line}",
    # Otherwise it binds the agent, and with it all workers of the host, to one core.
    "mpirun": "mpirun --host {host} -n 1 --bind-to none {command}",
    "local": "{command}",
}
_OPTIONS = ("argument", "hosts", "launcher", "python", "num_cpus", "num_gpus")
_STOP_SECONDS = 5.0
_SHOWN_LINES = 5


class HostsAdapter(Adapter):
    name = "hosts"

    def start(self, options: dict[str, Any]) -> None:
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise Refused(f"unknown option {unknown[0]!r}; the options are {', '.join(_OPTIONS[1:])}")
        hosts = options.get("hosts", options.get("argument") or "")
        self._hosts = [host.strip() for host in hosts.split(",")] if isinstance(hosts, str) else list(hosts)
        if not all(self._hosts) or not self._hosts:
            raise Refused('no hosts: use engine="hosts:a,b"')
        if len(set(self._hosts)) < len(self._hosts):
            raise Refused(f"a host is listed twice: {', '.join(self._hosts)}")
        launcher = options.get("launcher", "ssh")
        self._template = LAUNCHERS.get(launcher, launcher)
        if "{command" not in self._template:
            raise Refused(
                f"launcher = {launcher!r}: use {', '.join(LAUNCHERS)}, or a command with {{command}}, such as "
                "'ip netns exec {host} {command}'"
            )
        self._python = options.get("python")
        cpus, gpus = options.get("num_cpus"), options.get("num_gpus")
        self._total = {"CPU": float(cpus)} if cpus is not None else None
        self._gpus = [str(index) for index in range(gpus)] if gpus is not None else None
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        # Without a host in the command, the agents are on this machine.
        remote = "{host}" in self._template
        self.driver_host = address_towards(network_name(self._hosts[0])) if remote else "127.0.0.1"

    def nodes(self) -> list[Node]:
        return [Node(id=host, host=host, total=self._total, gpus=self._gpus) for host in self._hosts]

    def start_agent(self, start: AgentStart) -> None:
        command = [self._python or start.argv[0], *start.argv[1:]]
        program = None
        if start.env.get("TRIREME_AGENT"):  # a C++ program is its own agent
            program = Program(start.argv[0])
            command = program.command()
        if start.env:
            command = ["env", *(f"{name}={value}" for name, value in start.env.items()), *command]
        words: list[str] = []
        for word in shlex.split(self._template):
            if word == "{command}":
                words += command
            else:
                words.append(word.replace("{command_line}", shlex.join(command)).replace("{host}", start.node))
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if program else sys.stderr,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self.agent_exited(start.agent, f"{words[0]}: {error.strerror}")
            return
        self._agents[start.agent] = process
        threading.Thread(target=_begin, args=(process, program, start.ticket), daemon=True).start()
        threading.Thread(target=self._wait, args=(start.agent, process), daemon=True).start()

    def _wait(self, agent: str, process: subprocess.Popen[bytes]) -> None:
        lines: list[str] = []
        assert process.stderr is not None
        for line in (raw.decode(errors="replace") for raw in process.stderr):
            sys.stderr.write(line)
            lines = [*lines[1 - _SHOWN_LINES :], line.strip()]
        code = process.wait()
        self.agent_exited(agent, ": ".join([describe(code), *filter(None, ["; ".join(lines)])]))

    def stop_agent(self, agent: str) -> None:
        process = self._agents.pop(agent, None)
        if process is not None:
            threading.Thread(target=_stop, args=(process,), daemon=True).start()

    def close(self) -> None:
        processes = list(self._agents.values())
        for process in processes:
            _stop(process)


def network_name(host: str) -> str:
    """The name that the network knows: `b` may only exist in the configuration of ssh, as an alias."""
    name = host.rpartition("@")[2]
    try:
        described = subprocess.run(["ssh", "-G", "--", host], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError:
        return name
    lines = described.stdout.splitlines()
    return next((line.partition(" ")[2] for line in lines if line.startswith("hostname ")), name)


def _begin(process: subprocess.Popen[bytes], program: Program | None, ticket: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it may have ended already; another thread reports how
        if program is not None and process.stdout is not None:
            program.serve(process.stdout, process.stdin, sys.stderr)
        process.stdin.write(ticket.encode() + b"\n")
        process.stdin.close()
    if process.stdout is not None:
        for line in process.stdout:
            sys.stderr.write(line.decode(errors="replace"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The agent ends by itself, because its connection to the driver is closed; ssh ends with it."""
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    HostsAdapter().serve()
