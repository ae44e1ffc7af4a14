from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import trireme
from cpp_programs import ROOT
from trireme import (
    CheckpointConfig,
    ConfigError,
    DataConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    UserCallback,
)


def test_defaults_are_those_of_the_tables() -> None:
    assert ScalingConfig().num_workers == 1
    assert ScalingConfig().placement_strategy == "PACK"
    assert FailureConfig().max_failures == 0
    assert CheckpointConfig().checkpoint_score_order == "max"
    assert LoggingConfig().log_level == "INFO"
    assert DataConfig().datasets_to_split == "all"
    assert RunConfig().failure_config == FailureConfig()
    assert RunConfig().callbacks == []


def test_fields_by_position_follow_the_order_of_the_table() -> None:
    assert ScalingConfig({"CPU": 0}, 4, True) == ScalingConfig(
        trainer_resources={"CPU": 0}, num_workers=4, use_gpu=True
    )


def test_repr_shows_what_differs_from_the_default_and_can_be_evaluated() -> None:
    config = RunConfig(name="a", failure_config=FailureConfig(max_failures=3))
    assert repr(config) == "RunConfig(name='a', failure_config=FailureConfig(max_failures=3))"
    assert eval(repr(config)) == config
    assert repr(ScalingConfig(num_workers=(1, 4))) == "ScalingConfig(num_workers=(1, 4))"


@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_are_equal(travel: Any) -> None:
    config = RunConfig(name="a", checkpoint_config=CheckpointConfig(num_to_keep=2))
    assert travel(config) == config
    assert travel(config) is not config


def test_cloudpickle_round_trip() -> None:
    config = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2})
    assert cloudpickle.loads(cloudpickle.dumps(config)) == config


def test_inequality() -> None:
    assert ScalingConfig(num_workers=2) != ScalingConfig(num_workers=3)
    assert ScalingConfig() != FailureConfig()


def test_replace_leaves_the_original_alone() -> None:
    config = ScalingConfig(num_workers=2)
    assert config.replace(num_workers=3).num_workers == 3
    assert config.num_workers == 2


def test_assignment_is_checked_like_construction() -> None:
    config = ScalingConfig()
    config.num_workers = 7
    assert config.num_workers == 7
    with pytest.raises(ConfigError, match="num_workers"):
        config.num_workers = -1
    assert config.num_workers == 7
    with pytest.raises(ConfigError, match="num_worker"):
        config.num_worker = 2  # type: ignore[attr-defined]


def test_to_dict_goes_into_nested_configs() -> None:
    assert RunConfig(failure_config=FailureConfig(2)).to_dict()["failure_config"]["max_failures"] == 2


def test_nested_config_as_dict_and_none() -> None:
    assert RunConfig(failure_config={"max_failures": 2}).failure_config == FailureConfig(max_failures=2)
    assert RunConfig(failure_config=None, worker_runtime_env=None, callbacks=None) == RunConfig()


def test_a_path_is_as_good_as_text(tmp_path: Path) -> None:
    assert RunConfig(storage_path=tmp_path).storage_path == str(tmp_path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ScalingConfig(num_workers=-1), ["num_workers", "-1"]),
        (lambda: ScalingConfig(num_workers=(3, 1)), ["num_workers", "3", "1"]),
        (lambda: ScalingConfig(num_workers=(1, 2, 3)), ["num_workers"]),
        (lambda: ScalingConfig(num_workers="4"), ["num_workers"]),
        (lambda: ScalingConfig(num_workers=True), ["num_workers"]),
        (lambda: ScalingConfig(num_workers=1.5), ["num_workers"]),
        (lambda: ScalingConfig(use_gpu="yes"), ["use_gpu", "bool"]),
        (lambda: ScalingConfig(resources_per_worker={"GPU": 1}), ["resources_per_worker", "GPU", "use_gpu"]),
        (lambda: ScalingConfig(resources_per_worker={"CPU": -1}), ["resources_per_worker", "CPU", "-1"]),
        (lambda: ScalingConfig(resources_per_worker=[1]), ["resources_per_worker"]),
        (lambda: ScalingConfig(placement_strategy="TIGHT"), ["placement_strategy", "TIGHT", "STRICT_PACK"]),
        (lambda: ScalingConfig(num_worker=2), ["num_worker", "num_workers"]),
        (lambda: ScalingConfig(1, 2, 3, 4, 5, 6, 7, 8, 9), ["ScalingConfig", "9"]),
        (lambda: ScalingConfig({"CPU": 0}, trainer_resources={"CPU": 0}), ["trainer_resources", "twice"]),
        (lambda: ScalingConfig(use_tpu=True), ["use_tpu", "is not supported by Trireme", "use_gpu"]),
        (lambda: ScalingConfig(label_selector="eu"), ["label_selector", "dict"]),
        (lambda: ScalingConfig(label_selector={"region": 1}), ["label_selector", "region", "str"]),
        (lambda: FailureConfig(max_failures="many"), ["max_failures", "int"]),
        (lambda: FailureConfig(fail_fast=True), ["fail_fast", "max_failures=0"]),
        (lambda: CheckpointConfig(num_to_keep=0), ["num_to_keep", "0"]),
        (lambda: CheckpointConfig(checkpoint_score_order="best"), ["checkpoint_score_order", "best", "max", "min"]),
        (lambda: LoggingConfig(log_level="LOUD"), ["log_level", "LOUD", "DEBUG"]),
        (lambda: DataConfig(datasets_to_split=3), ["datasets_to_split"]),
        (lambda: RunConfig(failure_config=3), ["failure_config"]),
        (lambda: RunConfig(failure_config={"max_failure": 3}), ["max_failure", "max_failures"]),
        (lambda: RunConfig(name=3), ["name", "str"]),
        (lambda: RunConfig(name="a/b"), ["name", "a/b"]),
        (lambda: RunConfig(stop={"loss": 1}), ["stop", "is not supported by Trireme"]),
        (lambda: RunConfig(callbacks=[UserCallback(), object()]), ["callbacks[1]", "UserCallback", "object"]),
        (lambda: RunConfig(callbacks=[UserCallback]), ["callbacks[0]", "the class UserCallback"]),
        (lambda: RunConfig(worker_runtime_env={"pip": ["x"]}), ["worker_runtime_env", "pip", "env_vars"]),
        (lambda: RunConfig(worker_runtime_env={"env_vars": {"A": 1}}), ["env_vars", "str"]),
        (lambda: RunConfig(worker_runtime_env={"working_dir": "/no/such"}), ["working_dir", "/no/such"]),
        (lambda: RunConfig(worker_runtime_env={"py_modules": "x"}), ["py_modules", "list"]),
        (lambda: RunConfig(worker_runtime_env={"py_modules": ["/no/such"]}), ["py_modules", "/no/such"]),
    ],
)
def test_what_cannot_work_is_refused_by_name(make: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_properties_of_scaling() -> None:
    config = ScalingConfig(num_workers=(1, 4), use_gpu=True, resources_per_worker={"CPU": 2, "disk": 3})
    assert config.elasticity_enabled
    assert (config.min_workers, config.max_workers) == (1, 4)
    assert (config.num_cpus_per_worker, config.num_gpus_per_worker) == (2, 1)
    assert config.additional_resources_per_worker == {"disk": 3}
    assert config.total_resources == {"CPU": 8, "GPU": 4, "disk": 12}
    assert not ScalingConfig(num_workers=3).elasticity_enabled


def test_log_level_in_any_case() -> None:
    assert LoggingConfig(log_level="warning").log_level == "WARNING"


def test_help_lists_the_fields() -> None:
    assert "num_workers" in (ScalingConfig.__doc__ or "")
    assert next(iter(inspect.signature(FailureConfig).parameters)) == "max_failures"


def test_stub_and_reference_page_follow_the_tables() -> None:
    tool = ROOT / "tools/generate_config_stub.py"
    checked = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("variable", "text"),
    [("TRIREME_NUM_CPUS", "many"), ("TRIREME_NUM_GPUS", "x"), ("TRIREME_RESOURCES", "{"), ("TRIREME_RESOURCES", "[1]")],
)
def test_bad_environment_names_the_variable(
    variable: str, text: str, declared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=variable):
        declared()


@pytest.mark.parametrize("engine", ["ray", "slurm", "cloud"])
def test_engines_that_this_build_does_not_have(engine: str) -> None:
    with pytest.raises(ConfigError, match=engine):
        trireme.init(engine=engine)


class Spread(ScalingConfig):
    """A user's subclass with its own __init__ and attributes."""

    def __init__(self, nodes: int = 2, **fields: Any) -> None:
        super().__init__(num_workers=4 * nodes, **fields)
        self.nodes = nodes

    @property
    def workers_per_node(self) -> int:
        return self.max_workers // self.nodes


@dataclasses.dataclass
class Labelled(ScalingConfig):
    label: str = "none"


class Named(FailureConfig):
    pass


@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_subclasses(travel: Any) -> None:
    config = Spread(nodes=3, resources_per_worker={"CPU": 2})
    assert (config.num_workers, config.workers_per_node, config.num_cpus_per_worker) == (12, 4, 2)
    assert travel(config) == config
    assert travel(config).nodes == 3
    assert repr(config) == "Spread(num_workers=12, resources_per_worker={'CPU': 2.0}, nodes=3)"
    assert config != Spread(nodes=2, resources_per_worker={"CPU": 2})
    assert list(inspect.signature(Spread).parameters) == ["nodes", "fields"]
    changed = config.replace(num_workers=1)
    assert (changed.num_workers, changed.nodes, config.num_workers) == (1, 3, 12)
    assert "nodes" not in config.to_dict()
    with pytest.raises(ConfigError, match="num_workers = -1"):
        config.num_workers = -1
    with pytest.raises(ConfigError, match="did you mean 'use_gpu'"):
        Spread(use_gpus=True)


def test_a_subclass_may_be_a_dataclass() -> None:
    config = Labelled(num_workers=3, label="a")
    assert (config.num_workers, config.label, config.use_gpu) == (3, "a", False)
    with pytest.raises(ConfigError, match="num_workers"):
        Labelled(num_workers=-1)
    assert dataclasses.replace(config, num_workers=4).num_workers == 4
    assert [field.name for field in dataclasses.fields(FailureConfig)] == list(FailureConfig().to_dict())
    nested = dataclasses.asdict(RunConfig(name="a", failure_config=FailureConfig(max_failures=3)))
    assert (nested["name"], nested["failure_config"]["max_failures"]) == ("a", 3)


def test_a_part_keeps_its_class_and_is_a_copy() -> None:
    part = Named(max_failures=2)
    config = RunConfig(failure_config=part)
    assert isinstance(config.failure_config, Named)
    part.max_failures = 7
    assert config.failure_config.max_failures == 2
    config.name = "b"
    assert isinstance(config.failure_config, Named)


def test_a_trainer_takes_subclasses() -> None:
    def train() -> int:
        return trireme.get_context().get_world_size()

    scaling = Labelled(num_workers=2, trainer_resources={"CPU": 0})
    run = RunConfig(name="sub", failure_config=Named())
    trainer = trireme.DataParallelTrainer(train, scaling_config=scaling, run_config=run)
    assert trainer.fit().return_value == 2
