"""Which objects can be training functions, and where they run."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import trireme
from trireme import DataParallelTrainer, Result, RunConfig, ScalingConfig


def fit(function: Any, config: dict[str, Any] | None = None, workers: int = 1, **run: Any) -> Result:
    scaling = ScalingConfig(num_workers=workers)
    return DataParallelTrainer(
        function, train_loop_config=config, scaling_config=scaling, run_config=RunConfig(**run)
    ).fit()


def module_function(config: dict[str, Any]) -> Any:
    return config["value"]


class Job:
    def __init__(self, value: int) -> None:
        self.value = value

    def train(self) -> int:
        return self.value

    def __call__(self, config: dict[str, Any]) -> int:
        return self.value + len(config)


def test_function_of_a_module() -> None:
    assert fit(module_function, {"value": 5}).return_value == 5


def test_closure() -> None:
    factor = 6

    def train(config: dict[str, Any]) -> Any:
        return factor * config["value"]

    assert fit(train, {"value": 7}).return_value == 42


def test_lambda() -> None:
    assert fit(lambda config: config).return_value == {}
    assert fit(lambda: 3).return_value == 3


def test_bound_method_partial_and_callable_object() -> None:
    assert fit(Job(8).train).return_value == 8
    assert fit(Job(8), {"a": 1}).return_value == 9
    assert fit(functools.partial(module_function, {"value": 1})).return_value == 1


def test_optional_parameter_gets_the_config_where_one_is_given() -> None:
    def train(config: Any = None) -> Any:
        return config

    assert fit(train).return_value is None
    assert fit(train, {"a": 1}).return_value == {"a": 1}


def test_only_rank_zero_returns() -> None:
    assert fit(lambda: trireme.get_context().get_world_rank() + 10, workers=3).return_value == 10


def test_objects_come_back() -> None:
    returned = fit(lambda: Job(3)).return_value
    assert isinstance(returned, Job)
    assert returned.value == 3


def test_return_value_that_cannot_travel() -> None:
    def train() -> Any:
        import threading

        return threading.Lock()

    with pytest.raises(trireme.WorkerGroupError, match=r"return value.*lock"):
        fit(train)


def test_workers_start_in_the_drivers_folder_with_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_SETTING", "of the driver")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/made_for_this_test.py").write_text("VALUE = 11")

    def train() -> Any:
        import made_for_this_test

        return os.getcwd(), os.environ["SOME_SETTING"], made_for_this_test.VALUE, sys.argv

    cwd, setting, value, argv = fit(train).return_value
    assert (cwd, setting, value) == (str(tmp_path), "of the driver", 11)
    assert argv == sys.argv


def test_worker_runtime_env(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/beside.py").write_text("VALUE = 1")
    (tmp_path / "lib/a_package").mkdir(parents=True)
    (tmp_path / "lib/a_package/__init__.py").write_text("VALUE = 2")
    (tmp_path / "lib/a_module.py").write_text("VALUE = 3")

    def train() -> Any:
        import a_module
        import a_package
        import beside

        return os.getcwd(), os.environ["TOKEN"], beside.VALUE, a_package.VALUE, a_module.VALUE

    env = {
        "env_vars": {"TOKEN": "very secret"},
        "working_dir": tmp_path / "work",
        "py_modules": [tmp_path / "lib/a_package", str(tmp_path / "lib/a_module.py")],
    }
    result = fit(train, worker_runtime_env=env)
    assert result.return_value == (str(tmp_path / "work"), "very secret", 1, 2, 3)
    recorded = Path(result.path or "", "run.json").read_text()
    assert "TOKEN" in recorded
    assert "very secret" not in recorded


def test_functions_and_classes_of_main_and_modules_of_the_scripts_folder(script: Any, tmp_path: Path) -> None:
    (script.folder / "neighbour.py").write_text("def double(x):\n    return 2 * x\n")
    done = script.run(
        """
        import json, sys
        import neighbour
        import trireme

        FACTOR = 3

        class Thing:
            def value(self):
                return neighbour.double(FACTOR)

        def helper():
            return Thing().value()

        def train(config):
            return helper() + config["more"]

        if __name__ == "__main__":
            result = trireme.DataParallelTrainer(train, train_loop_config={"more": 1}).fit()
            json.dump(result.return_value, open(sys.argv[1], "w"))
        """,
        str(tmp_path / "out.json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out.json").read_text()) == 7


def test_workers_import_a_module_that_starts_a_thread_themselves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A fork would not copy the thread, so the warm process restarts without the module and still forks workers."""
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "threaded_module.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    )
    sys.path.insert(0, str(lib))
    try:
        result = fit(lambda config: config["value"], {"value": 4}, preload=["threaded_module"])
    finally:
        sys.path.remove(str(lib))
        trireme.shutdown()
    assert result.return_value == 4
    events = [json.loads(line) for line in Path(result.path or "", "events.jsonl").read_text().splitlines()]
    assert [event["forked"] for event in events if event["event"] == "worker_started"] == [True]
    told = capfd.readouterr().err
    assert "restarts without threaded_module" in told
    assert "its import started a thread" in told
