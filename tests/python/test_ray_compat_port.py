"""`trireme port`: turns a script for Ray Train into one for Trireme."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("libcst")

SCRIPT = '''\
"""A script for Ray Train."""

import os  # of the standard library

# Ray, in several ways
import ray
import ray.train.collective
from ray import train
from ray.air import session
from ray.train import (  # configurations
    Checkpoint,
    RunConfig,  # the run
    ScalingConfig as Scaling,
)
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train_func(config):
    assert session.get_world_size() == 2
    ray.train.collective.barrier()  # all ranks
    train.report({"loss": config["loss"]})
    session.report(
        {"loss": 2},
        checkpoint=None,
    )


ray.init(num_cpus=4, ignore_reinit_error=True)
trainer = DataParallelTrainer(
    train_func,
    train_loop_config={"loss": 1},
    scaling_config=Scaling(num_workers=2),  # two
    run_config=RunConfig(name="ported", storage_path=os.environ["TRIREME_RESULTS"]),
)
print("loss", trainer.fit().metrics["loss"])
'''

PORTED = '''\
"""A script for Ray Train."""

import os  # of the standard library

# Ray, in several ways
import trireme
import trireme.collective
from trireme import (  # configurations
    Checkpoint,
    RunConfig,  # the run
    ScalingConfig as Scaling,
)
from trireme import DataParallelTrainer


def train_func(config):
    assert trireme.get_context().get_world_size() == 2
    trireme.collective.barrier()  # all ranks
    trireme.report({"loss": config["loss"]})
    trireme.report(
        {"loss": 2},
        checkpoint=None,
    )


trireme.init(num_cpus=4)
trainer = DataParallelTrainer(
    train_func,
    train_loop_config={"loss": 1},
    scaling_config=Scaling(num_workers=2),  # two
    run_config=RunConfig(name="ported", storage_path=os.environ["TRIREME_RESULTS"]),
)
print("loss", trainer.fit().metrics["loss"])
'''


def run_port(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "trireme._cli", "port", *words], capture_output=True, text=True)


def test_a_ported_script_keeps_its_layout_and_runs_without_ray(script: Any) -> None:
    path = script.write(SCRIPT)
    listed = run_port(str(path))
    assert listed.returncode == 0, listed.stderr
    assert path.read_text() == SCRIPT, "only --write changes the file"
    assert f"{path}:20: ray.train.collective.barrier -> trireme.collective.barrier" in listed.stdout
    assert "(--write applies them), 0 places to change by hand" in listed.stdout
    written = run_port("--write", str(path))
    assert written.returncode == 0, written.stderr
    assert path.read_text() == PORTED
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "loss 2" in done.stdout


CASES = [
    (
        "from ray.tune import Tuner\n",
        "from ray.tune import Tuner\n",
        "by hand: ray.tune.Tuner: Trireme has no tuner",
    ),
    (
        "from ray.train import RunConfig, SyncConfig\n\nc = RunConfig(\n    name='a',  # its name\n    verbose=1,\n    "
        "sync_config=SyncConfig(),\n)\nd = RunConfig(verbose=2)\n",
        "from trireme import RunConfig\n\nc = RunConfig(\n    name='a',  # its name\n)\nd = RunConfig()\n",
        "trireme.RunConfig(sync_config=...) deleted: report() stores checkpoints itself",
    ),
    (
        "from ray import air, train\nair.RunConfig(local_dir='x', sync_config=train.SyncConfig(sync_period=1))\n",
        "import trireme\ntrireme.RunConfig(storage_path='x')\n",
        "trireme.RunConfig(local_dir=...) -> storage_path=...",
    ),
    (
        "from ray.train import SyncConfig, RunConfig\nkept = SyncConfig()\nRunConfig(sync_config=kept)\n",
        "from trireme import RunConfig\nfrom ray.train import SyncConfig\nkept = SyncConfig()\nRunConfig()\n",
        "by hand: ray.train.SyncConfig",
    ),
    (
        "result.metrics['training_iteration'] + other['pid'] + result.metrics['loss']\n",
        "result.metrics['training_iteration'] + other['pid'] + result.metrics['loss']\n",
        "by hand: metrics['training_iteration']: Trireme adds nothing",
    ),
    (
        "from ray.air import Checkpoint\nc = Checkpoint.from_bytes(result.checkpoint.to_bytes() + n.to_bytes())\n",
        "from trireme import Checkpoint\nc = Checkpoint.from_bytes(result.checkpoint.to_bytes() + n.to_bytes())\n",
        "by hand: Checkpoint.to_bytes",
    ),
    ("import ray\nray.get(1)\n", "import ray\nray.get(1)\n", "by hand: ray.get: keep `trireme run --ray-compat`"),
    (
        "from ray.train import RunConfig\nRunConfig(verbose=1)\n",
        "from trireme import RunConfig\nRunConfig()\n",
        "trireme.RunConfig(verbose=...) deleted: logging_config=LoggingConfig(log_level=...)",
    ),
    (
        "from ray.train.torch import TorchTrainer, TorchXLAConfig\n",
        "from trireme.torch import TorchTrainer\nfrom ray.train.torch import TorchXLAConfig\n",
        "by hand: ray.train.torch.TorchXLAConfig: AWS Neuron",
    ),
    (
        "import ray\nimport ray.data as rd\nray.init()\nx = rd.range(3).count()\n",
        "import trireme\nimport trireme.data\ntrireme.init()\nx = trireme.data.range(3).count()\n",
        "rd.range -> trireme.data.range",
    ),
    ("from ray.train.lightning import RayDDPStrategy\n", "from trireme.lightning import RayDDPStrategy\n", "->"),
    ("ray = 1\nray.train = 2\n", "ray = 1\nray.train = 2\n", ""),
    (
        "def f():\n    from ray import train\n    train.report({})\n",
        "def f():\n    import trireme\n    trireme.report({})\n",
        "->",
    ),
]

# In a process of its own: importing the tables installs the import hook.
PORT_ALL = """
import json, sys
from trireme.compat.port._rewrite import port
made = [port(source, "script.py") for source in json.loads(sys.argv[1])]
print(json.dumps([[each.source, [note.text for note in each.notes]] for each in made]))
"""


def in_process(source: str, *arguments: str) -> Any:
    environment = {**os.environ, "TRIREME_NO_WARM_UP": "1"}
    done = subprocess.run([sys.executable, "-c", source, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_rewritten_and_what_is_left() -> None:
    made = in_process(PORT_ALL, json.dumps([source for source, _, _ in CASES]))
    for (source, expected, note), (ported, notes) in zip(CASES, made, strict=True):
        assert ported == expected, source
        assert note in "\n".join(notes) and bool(note) == bool(notes), source


def test_a_script_that_is_no_python(script: Any) -> None:
    path = script.write("def broken(:\n")
    done = run_port(str(path))
    assert done.returncode == 1 and f"{path}:1: invalid syntax" in done.stderr


EVERY_NAME = """
import json
from importlib import import_module
from trireme.compat.port._native import native
from trireme.compat.ray._table import MODULES

def exists(target):
    where, _, attribute = target.partition(":")
    try:
        found = import_module(where)
    except ModuleNotFoundError as error:  # a package that is not installed, or an adapter that Trireme lacks
        return error.name is None or not error.name.startswith("trireme")
    first = attribute.split("(")[0]
    return not first or first in dir(found) or where.endswith("_trainers") or hasattr(type(found), first)

missing = []
for module, entry in MODULES.items():
    for name, served in entry.names.items():
        targets = {served.target, native(f"{module}.{name}") or served.target} - {""}
        missing += [f"{module}.{name}: {target}" for target in targets if not exists(target)]
print(json.dumps(missing))
"""


def test_every_name_exists() -> None:
    """What the tables promise, and what `trireme port` writes. Lists names without importing frameworks."""
    assert in_process(EVERY_NAME) == []
