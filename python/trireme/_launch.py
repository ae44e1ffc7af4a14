"""`python -m trireme._launch OPTIONS script.py args...`, started by `trireme launch`.

OPTIONS is JSON with all fields of LaunchOptions (src/cli/commands.h). The command line has already checked them. This
module checks what needs Python and the machine, before anything starts.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

from trireme import _core
from trireme._config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from trireme._errors import TrainingFailedError
from trireme._launch_backend import LaunchConfig
from trireme._main_script import run_as_main
from trireme._preload import frameworks_of
from trireme._runtime import runtime, warm_up
from trireme._trainer import DataParallelTrainer

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


def main(options: SimpleNamespace, script: str, arguments: list[str]) -> int:
    if not sys.flags.safe_path:
        # As `python script.py` and `python -m module` set it.
        sys.path[0] = os.getcwd() if options.module else os.path.dirname(os.path.realpath(script))
    try:
        source = _source_of_module(script) if options.module else _source(script)
        frameworks = frameworks_of(source)
        warm_up(frameworks)
        sys.argv[:] = [script, *arguments]
        _trainer(options, script, arguments, frameworks).fit()
    except SyntaxError as error:
        print("".join(traceback.format_exception_only(error)), file=sys.stderr, end="")
        return FAILED
    except _core.ConfigError as error:
        print(f"trireme: {error}", file=sys.stderr)
        return WRONG_USAGE
    except (TrainingFailedError, OSError) as error:
        print(f"trireme: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


def _trainer(options: SimpleNamespace, script: str, arguments: list[str], frameworks: list[str]) -> DataParallelTrainer:
    per_machine = _workers_per_machine(options.num_workers)
    use_gpu = options.use_gpu or bool(options.gpus_per_worker) or per_machine == "GPU"
    gpus = {"GPU": options.gpus_per_worker or 1} if use_gpu else {}
    if per_machine:
        num_workers: int | tuple[int, ...] = _capacity(per_machine, options)
    else:
        numbers = tuple(int(number) for number in options.num_workers.split(","))
        num_workers = numbers[0] if len(numbers) == 1 else numbers
    return DataParallelTrainer(
        run_as_main,
        train_loop_config={
            "script": script,
            "is_module": options.module,
            "arguments": arguments,
            "folder": os.getcwd(),
        },
        backend_config=LaunchConfig(max_restarts=options.max_failures),
        scaling_config=ScalingConfig(
            num_workers=num_workers,  # type: ignore[arg-type]
            use_gpu=use_gpu,
            resources_per_worker={"CPU": options.cpus_per_worker, **gpus},
            trainer_resources={},  # this process only waits
        ),
        run_config=RunConfig(
            name=options.name,
            storage_path=options.storage_path,
            failure_config=FailureConfig(max_failures=options.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=options.num_to_keep),
            worker_runtime_env={"env_vars": options.env},
            preload=[*frameworks, *options.preload],
        ),
    )


def _workers_per_machine(asked: str) -> str | None:
    """The resource to count if -n is not a number."""
    if asked == "auto":
        return "GPU" if _total("GPU") else "CPU"
    return {"cpu": "CPU", "gpu": "GPU"}.get(asked)


def _capacity(resource: str, options: SimpleNamespace) -> int:
    each = (options.gpus_per_worker or 1) if resource == "GPU" else options.cpus_per_worker
    count = int(_total(resource) // (each or 1))
    if count < 1:
        raise _core.ConfigError(
            f"-n {options.num_workers}: this machine has {_total(resource):g} {resource}s and a worker needs {each:g}; "
            "set the number of workers, for example -n 2"
        )
    return count


def _total(resource: str) -> float:
    return sum(float(node["total"].get(resource, 0)) for node in runtime().nodes())


def _source(path: str) -> str:
    """The script's source; raises SyntaxError, as every worker would."""
    with open(path, "rb") as file:
        text = file.read()
    compile(text, os.path.abspath(path), "exec", dont_inherit=True)
    return text.decode(errors="replace")


def _source_of_module(name: str) -> str:
    """Empty if the module is not a Python file, or cannot be found without importing its parent packages."""
    try:
        spec = _find_module(name)
    except KeyError:  # nested namespace packages
        return ""
    return _source(spec.origin) if spec.origin and spec.origin.endswith(".py") else ""


def _find_module(name: str) -> ModuleSpec:
    """Like importlib.util.find_spec(), but does not import the parent packages in this process."""
    spec, path = None, None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = _find(".".join(parts[:end]), path)
        if spec is None:
            raise _core.ConfigError(f"no module named '{name}' in {os.getcwd()} or on sys.path")
        path = list(spec.submodule_search_locations or [])
    if path:
        spec = _find(f"{name}.__main__", path)
    if spec is None:
        raise _core.ConfigError(f"'{name}' is a package without a __main__ module; specify the module to run")
    return spec


def _find(name: str, path: list[str] | None) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec), None)


if __name__ == "__main__":
    sys.exit(main(SimpleNamespace(**json.loads(sys.argv[1])), sys.argv[2], sys.argv[3:]))
