"""A real Slurm for tests, on machines of its own (machines.py) or, where namespaces are not permitted, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from machines import Machine, Network, wait_for, why_not_permitted

_CONFIG = """\
ClusterName=trireme
SlurmctldHost={head}({head_address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=100000
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=5
MessageTimeout=3
TCPTimeout=1
UnkillableStepTimeout=60
ReturnToService=2
KillWait=2
JobRequeue=1
MpiDefault=none
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=30
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def installed() -> bool:
    return all(shutil.which(name) for name in ("slurmctld", "slurmd", "srun", "salloc"))


class SlurmCluster:
    """Nodes n1, n2, ... with `cpus` CPUs and `gpus` devices each. slurmctld runs on the head, which is not a node."""

    def __init__(self, folder: Path, nodes: int = 2, cpus: int = 8, gpus: int = 4) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.network = None if why_not_permitted() else Network(["head", *self.names])
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._write_configuration(cpus, gpus)
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        wait_for(lambda: set(self.states().values()) == {"idle"}, "all nodes are idle")

    def _write_configuration(self, cpus: int, gpus: int) -> None:
        ports = _free_ports(len(self.names) + 1)
        devices = self.folder / "devices"
        devices.mkdir(parents=True)
        for index in range(gpus):
            # Slurm wants character devices. These are copies of /dev/null.
            subprocess.run(["mknod", str(devices / f"nvidia{index}"), "c", "1", "3"], check=True)
        lines = []
        for index, name in enumerate(self.names):
            machine = self.machine(name)
            where = (
                f"NodeHostname={name} NodeAddr={machine.address} Port={ports[0]}"
                if machine
                else (f"NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[index]}")
            )
            lines.append(
                f"NodeName={name} {where} CPUs={cpus} RealMemory=4000 Gres=gpu:{gpus} Feature=fast,{name} State=UNKNOWN"
            )
        head = self.network.machines[0] if self.network else None
        text = _CONFIG.format(
            head=head.host if head else "localhost",
            head_address=head.address if head else "127.0.0.1",
            port=ports[-1],
            folder=self.folder,
            nodes="\n".join(lines),
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "state").mkdir()
        (self.folder / "gres.conf").write_text(
            f"NodeName={','.join(self.names)} Name=gpu File={devices}/nvidia[0-{gpus - 1}] Flags=nvidia_gpu_env\n"
        )
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def machine(self, name: str) -> Machine | None:
        return next((m for m in self.network.machines if m.host == name), None) if self.network else None

    def start_controller(self) -> None:
        argv = ["slurmctld", "-D", "-i"]
        head = self.machine("head")
        self._start("slurmctld", head.command(argv) if head else argv)

    def stop_controller(self) -> None:
        self._stop("slurmctld")

    def start_node(self, name: str) -> None:
        machine = self.machine(name)
        (self.folder / "spool" / name).mkdir(parents=True, exist_ok=True)
        argv = ["slurmd", "-D", "-N", name]
        self._start(name, machine.command(argv) if machine else argv)

    def _start(self, name: str, argv: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """nsenter waits for its child, the daemon, and does not pass signals on."""
        daemon = self.daemons.pop(name)
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
        os.kill(int(children[0]) if children and self.network else daemon.pid, how)
        daemon.wait()

    def command(self, argv: list[str]) -> list[str]:
        """The command that runs `argv` on the login node, which is the head."""
        return self.network.machines[0].network_command(argv) if self.network else argv

    def run(self, *argv: str) -> str:
        return subprocess.run(
            self.command(list(argv)), env=self.environment, check=True, capture_output=True, text=True
        ).stdout

    def states(self) -> dict[str, str]:
        """{"n1": "idle"}; empty while slurmctld does not answer."""
        try:
            lines = self.run("sinfo", "-h", "-p", "low", "-N", "-o", "%N %t").split("\n")
        except subprocess.CalledProcessError:
            return {}
        return dict(line.split() for line in lines if line)

    def jobs(self) -> list[str]:
        return self.run("squeue", "-h", "-o", "%i %T").splitlines()

    def close(self) -> None:
        if self.network is None:
            for job in self.jobs():
                self.run("scancel", job.split()[0])
            wait_for(lambda: not self.jobs(), "all jobs have ended")
        for name in list(self.daemons):
            if self.network is None:
                self._stop(name)
        if self.network:
            self.network.close()
        for daemon in self.daemons.values():
            daemon.wait()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports
