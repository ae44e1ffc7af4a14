"""Scripts written for Ray Train, run with `trireme run --ray-compat` and `import trireme.compat.ray`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMPAT = [sys.executable, "-m", "trireme.compat.ray"]


def output_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON object that a script prints on its last line with "OUT"."""
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUT ")]
    found: dict[str, Any] = json.loads(lines[-1][4:])
    return found


SECOND_VERSION = """
import json, os, tempfile
import ray
import ray.train
import trireme
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

def train_func(config):
    context = ray.train.get_context()
    for epoch in range(config["epochs"]):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if context.get_world_rank() == 0:
                open(os.path.join(folder, "epoch.txt"), "w").write(str(epoch))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch, "by": context.get_world_size()}, checkpoint=checkpoint)
    trireme.report({"no checkpoint": 1})
    storage = context.get_storage()
    assert storage.build_checkpoint_path_from_name("x") == os.path.join(storage.experiment_fs_path, "x")
    newest = ray.train.get_checkpoint()
    return [context.get_experiment_name(), storage.experiment_dir_name, newest and newest.path]

if __name__ == "__main__":
    ray.init(num_cpus=2)
    assert ray.cluster_resources()["CPU"] == 2 and ray.is_initialized()
    result = DataParallelTrainer(
        train_func,
        train_loop_config={"epochs": 3},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=os.environ["TRIREME_RESULTS"], checkpoint_config=CheckpointConfig(num_to_keep=2)
        ),
    ).fit()
    print("OUT " + json.dumps({
        "metrics": result.metrics,
        "rows": result.metrics_dataframe.to_dict("records"),
        "names": [os.path.basename(checkpoint.path) for checkpoint, _ in result.best_checkpoints],
        "checkpoint": result.checkpoint.path,
        "path": result.path,
        "files": sorted(os.listdir(result.path)),
        "snapshot": json.load(open(os.path.join(result.path, "checkpoint_manager_snapshot.json"))),
        "value": result.return_value,
        "again": ray.train.Result.from_path(result.path).metrics,
        "our class": isinstance(result, trireme._result.Result) and isinstance(result.checkpoint, Checkpoint),
    }))
    ray.shutdown()
"""


def test_a_script_of_the_second_version(script: Any, results: Path) -> None:
    out = output_of(script.run(SECOND_VERSION, command=COMPAT))
    assert out["metrics"] == {"epoch": 2, "by": 2}, "those of the newest checkpoint, not of the last report"
    assert out["rows"] == [{"epoch": 1, "by": 2}, {"epoch": 2, "by": 2}]
    assert [name.startswith("checkpoint_20") and name.count("-") == 4 for name in out["names"]] == [True, True]
    assert out["checkpoint"] == os.path.join(out["path"], out["names"][-1])
    name = os.path.basename(out["path"])
    assert name.startswith("ray_train_run-")
    assert out["value"] == [name, name, out["checkpoint"]]
    assert {".validate_storage_marker", "checkpoint_manager_snapshot.json", *out["names"]} <= set(out["files"])
    snapshot = out["snapshot"]
    assert [each["checkpoint_dir_name"] for each in snapshot["checkpoint_results"]] == out["names"]
    assert snapshot["latest_checkpoint_result"]["metrics"] == out["metrics"] == out["again"]
    assert out["our class"]


REFUSALS = """
import json
import trireme.compat.ray

told = {}
def attempt(code):
    try:
        exec(code, {})
        told[code] = ""
    except BaseException as error:
        told[code] = f"{type(error).__name__}: {error}"

for code in %r:
    attempt(code)
print("OUT " + json.dumps(told))
"""


@pytest.mark.parametrize("when", ["installed", "not installed"])
def test_what_is_not_replaced_is_refused_by_name(script: Any, when: str) -> None:
    """Even if a package named ray is on the path, it is never imported."""
    if when == "installed":
        package = script.folder / "ray"
        package.mkdir()
        (package / "__init__.py").write_text("raise AssertionError('real Ray was imported')\n")
        (package / "serve.py").write_text("")
    expected = {
        "import ray.serve": "the module ray.serve is not available",
        "from ray import serve": "the module ray.serve is not available",
        "from ray.rllib.algorithms.ppo import PPOConfig": "reinforcement learning; run this script with Ray",
        "import ray.workflow": "workflow system",
        "from ray.dag import InputNode": "call the functions directly",
        "from ray.autoscaler.sdk import request_resources": "Trireme starts no clusters",
        "from ray.tune.schedulers import ASHAScheduler": "ray.tune.schedulers.ASHAScheduler is not available",
        "from ray.tune.search.optuna import OptunaSearch": "the module ray.tune.search.optuna is not available",
        "from ray import tune; tune.run(print)": "use tune.Tuner(trainer or function, param_space=...)",
        "from ray import tune; tune.TuneConfig(time_budget_s=1)": "TuneConfig(time_budget_s=...) is not available",
        "from ray import tune; tune.TuneConfig(scheduler=object())": "one after the other",
        "from ray import tune; tune.Tuner(int)": "pass a trainer or a function",
        "from ray.tune import RunConfig, TuneConfig, uniform; import ray.tune.logger": "",
        "from ray.train.batch_predictor import BatchPredictor": "pass it to Dataset.map_batches()",
        "from ray.data.aggregate import Unique; Unique('x', encode_lists=True)": "Dataset.flat_map()",
        "from ray.data.aggregate import Max; Max('x', zero_factory=lambda: 0)": "",
        "from ray.data.datasource import PathPartitionFilter; PathPartitionFilter(1, print)": "PathPartitionFilter.of",
        "from ray.data.datasource import FileBasedDatasource as F; F('x', schema=1)": "from _read_stream()",
        "from ray.train import Chekpoint": "did you mean Checkpoint?",
        "import ray.train.nothing": "ray.train.nothing is not available",
        "import ray.train; ray.train.nothing": "AttributeError: ray.train.nothing is not available",
        "from ray.train.torch.xla import TorchXLAConfig": "AWS Neuron",
        "import ray; ray.init(address='ray://head:10001')": "docs/clusters.md",
        "from ray.train import ScalingConfig; ScalingConfig(use_tpu=True)": "TPUs are not supported",
        "from ray.train import ScalingConfig; ScalingConfig(label_selector=[{'a': 'b'}, {}])": "use one dict",
        "from ray.train import RunConfig; RunConfig(worker_runtime_env={'pip': ['x']})": "install the packages there",
        "import ray.data; ray.data.range(2).write_mongo('uri')": "AttributeError: ray.data.Dataset.write_mongo is not",
        "import ray.data; assert not hasattr(ray.data.range(2), 'write_orc')": "",
        "import ray; ray.get_runtime_context().get_placement_group_id()": "describes Ray's cluster",
        "import ray; import pickle, ray.train; assert not hasattr(ray, 'undefined')": "",
        "import ray, trireme; assert ray.__version__.startswith('2.')": "",
        "from ray.train import *": "",
    }
    told = output_of(script.run(REFUSALS % list(expected)))
    for code, text in expected.items():
        assert text in told[code] and bool(text) == bool(told[code]), (code, told[code])


VERSIONS = """
import json
import trireme.compat.ray
from trireme.compat.ray import _version
import ray
from ray.data.preprocessors.scaler import StandardScaler
from ray.train.collective.collectives import barrier
from ray.tune.logger.json import JsonLoggerCallback
from ray.util.accelerators import NVIDIA_TESLA_V100

assert StandardScaler is ray.data.preprocessors.StandardScaler and NVIDIA_TESLA_V100 == "V100"
_version._signs.clear()
from ray.air.integrations import mlflow, wandb
both = _version.is_v1()
from ray.air import session
print("OUT " + json.dumps({"both": both, "first": _version.is_v1()}))
"""


def test_files_of_packages_and_what_both_versions_share(script: Any) -> None:
    """ray.air.integrations belongs to both versions, although importing it imports ray.air."""
    done = script.run(VERSIONS)
    assert output_of(done) == {"both": False, "first": True}
    assert "runs this script in place of Ray" in done.stdout.splitlines()[0]


RUNTIME_ENV = """
import json, os, warnings
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

def refusal(**runtime_env):
    try:
        ray.init(runtime_env=runtime_env)
    except Exception as error:
        return str(error)

def look():
    import of_the_folder
    return [of_the_folder.VALUE, os.getcwd(), os.environ["GIVEN"]]

if __name__ == "__main__":
    refused = [refusal(pip=["no-such-package", "numpy"]), refusal(conda="other"), refusal(working_dir="gone")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ray.init(runtime_env={
            "working_dir": "folder", "env_vars": {"GIVEN": "yes"}, "pip": ["numpy>=1", "# none"], "excludes": ["x"],
        })
    trained = DataParallelTrainer(look, scaling_config=ScalingConfig(num_workers=1)).fit().return_value
    task = ray.get(ray.remote(look).remote())
    ray.shutdown()
    print("OUT " + json.dumps([refused, trained, task, [str(each.message) for each in caught]]))
"""


def test_the_runtime_env_of_init_holds_for_workers_and_tasks(script: Any) -> None:
    folder = script.folder / "folder"
    folder.mkdir()
    (folder / "of_the_folder.py").write_text("VALUE = 7\n")
    refused, trained, task, warned = output_of(script.run(RUNTIME_ENV, command=COMPAT, cwd=folder.parent))
    assert "not installed (no-such-package)" in refused[0] and "['conda']" in refused[1]
    assert "ray.init(runtime_env)['working_dir']" in refused[2] and "does not exist" in refused[2]
    assert trained == task == [7, str(folder), "yes"]
    assert any("installs nothing" in text for text in warned)


def test_real_ray_that_is_imported_already_is_refused(script: Any) -> None:
    (script.folder / "ray.py").write_text("")
    done = script.run("import ray\nimport trireme.compat.ray\n")
    assert done.returncode == 1
    assert "ImportError: real Ray (" in done.stderr and "is already imported" in done.stderr


def test_the_report_lists_every_name_also_those_of_workers(script: Any) -> None:
    source = """
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def train_func():
        from ray.train.collective import barrier
        barrier()

    DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=1)).fit()
    try:
        from ray.tune import run
    except ImportError:
        pass
    """
    done = script.run(source, command=[sys.executable, "-m", "trireme._cli", "run", "--ray-compat=report"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs this script in place of Ray" in done.stdout.splitlines()[0]
    table = done.stdout.split("Names of Ray that the script used:")[1]
    rows = {words[0]: words[1] for line in table.splitlines() if len(words := line.split()) >= 2}
    assert rows["ray.train.ScalingConfig"] == "adapted"
    assert rows["ray.train.collective.barrier"] == "same"
    assert rows["ray.tune.run"] == "refused"
    assert "1 refused" in table


def test_the_page_lists_every_name() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, root / "tools/generate_ray_compat_page.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
