"""`trireme run --engine slurm`: from a login node, and inside a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapter_client import processes_with
from machines import wait_for
from slurm_cluster import SlurmCluster, installed

import trireme

pytestmark = [
    pytest.mark.skipif(not installed(), reason="Slurm is not installed: tools/install_packages.sh dev"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd runs as root"),
]
SCRIPT = """
import json, os, sys, trireme
from pathlib import Path
from trireme import DataParallelTrainer, RunConfig, ScalingConfig

def train():
    context = trireme.get_context()
    ranks = context.get_node_rank(), context.get_local_rank(), context.get_world_size()
    place = [os.environ["SLURMD_NODENAME"], *ranks]
    Path(sys.argv[2], f"{ranks[0]}-{ranks[1]}-{os.getpid()}").write_text(json.dumps(place))
    trireme.report({"done": 1})

scaling = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 4}, placement_strategy="SPREAD")
for name in ("first", "second"):
    DataParallelTrainer(train, scaling_config=scaling,
                        run_config=RunConfig(name=name, storage_path=sys.argv[1])).fit()
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    "where", [[], ["salloc", "--no-kill", "--nodes=2", "--ntasks=2", "--cpus-per-task=8"]], ids=["login", "job"]
)
def test_a_run_on_two_nodes(slurm: SlurmCluster, tmp_path: Path, agents: Path, where: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [
        *where,
        sys.executable,
        "-m",
        "trireme._cli",
        "run",
        "--engine",
        "slurm",
        str(script),
        str(tmp_path / "runs"),
        str(agents),
    ]
    env = {**slurm.environment, "TRIREME_STATE_DIR": str(tmp_path / "state")}
    run = subprocess.run(slurm.command(command), env=env, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    for name in ("first", "second"):
        assert trireme.Result.from_path(str(tmp_path / "runs" / name)).metrics == {"done": 1}
    found = {tuple(json.loads(path.read_text())) for path in agents.iterdir()}
    assert found == {("n1", 0, 0, 4), ("n1", 0, 1, 4), ("n2", 1, 0, 4), ("n2", 1, 1, 4)}
    wait_for(lambda: not slurm.jobs(), "no job is left")
    wait_for(lambda: not processes_with(tmp_path), "no process is left")
