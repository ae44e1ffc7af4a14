"""The trainer of a run, stored in the run folder for Trainer.restore()."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

from trireme import _ship
from trireme._storage import Location, write_whole

if TYPE_CHECKING:
    from trireme._checkpoint import Checkpoint
    from trireme._config import RunConfig
    from trireme._trainer import DataParallelTrainer
    from trireme._validation import ValidationConfig

FILE = "trainer.pkl"
# Names of environment variables whose values are not stored, by configuration.
_VARIABLES = "_variables"
# The location of resume_from_checkpoint, stored in place of its filesystem.
_RESUME = "_resume"


def store(trainer: DataParallelTrainer, path: str, storage: Location) -> str | None:
    """Stores the trainer in the run folder, locally and in the storage. Returns the problem if that fails; the run
    continues."""
    try:
        content = _dump(trainer)
        # Readable only by this user: configurations may hold secrets.
        write_whole(os.path.join(path, FILE), content, 0o600)
        if (files := storage.files()) is not None:
            files.write(storage.join(FILE).path, content)
    except Exception as error:
        return (
            f"the trainer cannot be stored, so {type(trainer).__name__}.restore() does not work for this run: {error}"
        )
    return None


def stored(folder: Location) -> bool:
    place = folder.join(FILE)
    files = place.files()
    return os.path.isfile(place.path) if files is None else files.exists(place.path)


def load(folder: Location, cls: type[DataParallelTrainer]) -> tuple[type[DataParallelTrainer], dict[str, Any]]:
    """The trainer's class and attributes, without those that could not be stored."""
    import cloudpickle

    place = folder.join(FILE)
    way_out = (
        f"Create the trainer again with RunConfig(name={os.path.basename(folder.path)!r}, storage_path=...) of that "
        "folder: fit() then continues the run"
    )
    if not stored(folder):
        raise ValueError(f"{folder} has no {FILE}, so the trainer cannot be restored. {way_out}")
    try:
        files = place.files()
        if files is not None:
            content = files.read(place.path)
        else:
            with open(place.path, "rb") as file:
                content = file.read()
        made_by, attributes = cloudpickle.loads(content)
    except Exception as error:
        raise RuntimeError(f"{place} cannot be read ({type(error).__name__}: {error}). {way_out}") from error
    if not issubclass(made_by, cls):
        raise TypeError(f"{place} was stored by a {made_by.__name__}; call {made_by.__name__}.restore()")
    return made_by, attributes


def _dump(trainer: DataParallelTrainer) -> bytes:
    run_config, variables = _without_values(trainer.run_config)
    validation_config, validation_variables = _without_validation_values(trainer.validation_config)
    resume = trainer.resume_from_checkpoint._where() if trainer.resume_from_checkpoint else None
    foreign = resume is not None and not resume.local
    # restore() gets the location from its path argument; a filesystem may hold keys.
    attributes = {
        **vars(trainer),
        "run_config": run_config.replace(storage_filesystem=None, storage_path=None),
        "validation_config": validation_config,
        "resume_from_checkpoint": None if foreign else trainer.resume_from_checkpoint,
        # Only the names: the caller passes the datasets to restore().
        "datasets": dict.fromkeys(trainer.datasets),
        _VARIABLES: {"run_config": variables, "validation_config": validation_variables},
        _RESUME: (resume.uri, resume.path) if foreign and resume else None,
    }
    try:
        content: bytes = _ship.dumps((type(trainer), attributes))
    except Exception:
        # Callbacks stay in the driver and may not be picklable; everything else was already sent to the workers.
        attributes["run_config"] = attributes["run_config"].replace(callbacks=[])
        attributes["_callbacks_lost"] = True
        content = _ship.dumps((type(trainer), attributes))
    return content


def _without_values(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Values of variables may be secrets, and the folder may be in a shared bucket."""
    env = dict(config.worker_runtime_env)
    names = sorted(env.pop("env_vars", {}))
    return config.replace(worker_runtime_env=env), names


def _without_validation_values(config: ValidationConfig | None) -> tuple[ValidationConfig | None, list[str]]:
    if config is None or not config.env_vars:
        return config, []
    return _with_remote_env(config, None), sorted(config.env_vars)


def _with_remote_env(config: ValidationConfig, variables: dict[str, str] | None) -> ValidationConfig:
    changed = copy.copy(config)
    env = {key: value for key, value in config.ray_remote_kwargs["runtime_env"].items() if key != "env_vars"}
    if variables is not None:
        env["env_vars"] = variables
    changed.ray_remote_kwargs = {**config.ray_remote_kwargs, "runtime_env": env}
    return changed


def give_back(
    attributes: dict[str, Any],
    run_config: RunConfig | None,
    validation_config: ValidationConfig | None,
    filesystem: Any,
) -> None:
    """Restores what was not stored: values of variables, from this process's environment, and the filesystem of
    `resume_from_checkpoint`. Arguments of restore() take precedence."""
    names = attributes.pop(_VARIABLES, {})
    if run_config is None and (variables := names.get("run_config")):
        config = attributes["run_config"]
        values = _values("worker_runtime_env['env_vars']", variables, "run_config=RunConfig(worker_runtime_env=...)")
        attributes["run_config"] = config.replace(worker_runtime_env={**config.worker_runtime_env, "env_vars": values})
    if validation_config is None and (variables := names.get("validation_config")):
        values = _values("env_vars of its ValidationConfig", variables, "validation_config=ValidationConfig(...)")
        attributes["validation_config"] = _with_remote_env(attributes["validation_config"], values)
    if place := attributes.pop(_RESUME, None):
        uri, path = place
        attributes["resume_from_checkpoint"] = _reopened(uri, path, filesystem)


def _values(what: str, names: list[str], way_out: str) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise ValueError(
            f"this run used {what}, whose values are not stored: set {', '.join(missing)} in the environment, "
            f"or pass restore() {way_out}"
        )
    return {name: os.environ[name] for name in names}


def _reopened(uri: str, path: str, filesystem: Any) -> Checkpoint | None:
    from trireme._checkpoint import Checkpoint

    try:
        if filesystem is not None or uri:
            return Checkpoint(uri if filesystem is None else path, filesystem)
        why = "its filesystem is not stored: pass restore() storage_filesystem"
    except Exception as error:  # the storage is not available, or needs the original keys
        why = f"{type(error).__name__}: {error}"
    print(
        f"warning: resume_from_checkpoint of this run, {uri or path}, cannot be opened ({why}); it is needed only "
        "until the run has its own checkpoint",
        flush=True,
    )
    return None
