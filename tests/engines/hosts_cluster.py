"""Machines that are reached by a real ssh: the driver's, and n1, n2, ... with an sshd each (machines.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from machines import Machine, Network, wait_for

_SERVER = """\
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
# `blue` is a name that only ssh knows.
_CLIENT = """\
Host blue
  HostName {blue}
Host *
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


def installed() -> bool:
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin") is not None


class HostsCluster:
    """Keys and configuration are its own; those of this user are neither read nor changed."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = dict(os.environ)
        self._servers: list[subprocess.Popen[bytes]] = []
        self.network = Network(["driver", *(f"n{number}" for number in range(1, nodes + 1))])
        try:
            self._write_keys()
            for machine in self.network.machines[1:]:
                self._start_server(machine)
        except BaseException:
            self.close()
            raise

    def _write_keys(self) -> None:
        for name in ("host_key", "user_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.folder / name)]
            subprocess.run(keygen, check=True)
        (self.folder / "known_hosts").write_text(f"* {(self.folder / 'host_key.pub').read_text()}")
        client = self.folder / "ssh_config"
        client.write_text(_CLIENT.format(folder=self.folder, blue=self.network.machines[1].address))
        # Only on the driver's machine, which has its own mounts.
        mount = ["mount", "--bind", str(client), "/etc/ssh/ssh_config"]
        subprocess.run(self.network.machines[0].command(mount), check=True)

    def _start_server(self, machine: Machine) -> None:
        config = self.folder / f"sshd_config.{machine.host}"
        config.write_text(_SERVER.format(folder=self.folder, address=machine.address))
        log = self.folder / f"sshd.{machine.host}.log"
        # sshd insists on this folder.
        script = f"mount -t tmpfs none /run && mkdir /run/sshd && exec $(command -v sshd) -D -e -f {config}"
        with log.open("wb") as output:
            self._servers.append(
                subprocess.Popen(
                    machine.command(["sh", "-c", f"PATH=$PATH:/usr/sbin; {script}"]),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )
        wait_for(lambda: b"Server listening" in log.read_bytes(), f"sshd on {machine.host}: {log.read_text()}")

    def machine(self, host: str) -> Machine:
        return next(machine for machine in self.network.machines if machine.host == host)

    def hosts(self) -> str:
        """The nodes by address, as the engine wants them."""
        return ",".join(machine.address for machine in self.network.machines[1:])

    def command(self, argv: list[str]) -> list[str]:
        """The command that runs `argv` on the driver's machine."""
        return self.network.machines[0].command(argv)

    def processes(self, host: str) -> dict[int, str]:
        """The processes of users on a node: pid on this machine and command."""
        found = {}
        for pid in self.machine(host).pids():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if command and not command.startswith(("sshd:", "/usr/sbin/sshd")):
                found[pid] = command
        return found

    def close(self) -> None:
        self.network.close()
        for server in self._servers:
            server.wait()
