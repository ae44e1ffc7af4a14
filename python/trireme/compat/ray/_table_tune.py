"""ray.tune: what trainers need of it. Trireme has no tuner yet."""

from __future__ import annotations

from trireme.compat.ray._names import Module, adapted, inside, module, refused, refused_module, same
from trireme.compat.ray._table_air import AIR
from trireme.compat.ray._table_train import _CHECKPOINT, _CONFIGS, _RESULT, _WORKER

_NO_TUNER = "Trireme has no tuner yet; call trainer.fit() for each configuration in a loop, or use Optuna around it"
_TUNERS_OWN = (
    "analysis",
    "context",
    "error",
    "integration.keras",
    "integration.lightgbm",
    "integration.pytorch_lightning",
    "integration.xgboost",
    "registry",
    "result",
    "result_grid",
    "trainable",
    "tune",
    "tune_config",
    "utils",
)
_CALLBACKS = "trireme.compat.ray._callbacks"
_LOGGERS = "trireme.compat.ray._loggers"
_SPACE = (
    "choice uniform quniform loguniform qloguniform randint qrandint lograndint qlograndint randn qrandn sample_from "
    "grid_search"
)

_PACKAGES: dict[str, Module] = {
    "ray.tune": module(
        _CONFIGS,
        _CHECKPOINT,
        _RESULT,
        {name: _WORKER[name] for name in ("report", "get_checkpoint", "get_context")},
        adapted(_CALLBACKS, "Callback=TuneCallback", "called for the one trial that a trainer is", v1=True),
        adapted("trireme.compat.ray._placement", "PlacementGroupFactory", "", v1=True),
        refused(
            "Tuner TuneConfig ResultGrid run Trainable with_parameters with_resources register_trainable "
            f"ExperimentAnalysis Experiment run_experiments create_scheduler create_searcher ResumeConfig TuneError "
            f"TuneContext register_env {_SPACE}",
            _NO_TUNER,
        ),
        refused("CLIReporter JupyterNotebookReporter ProgressReporter", "a run has its own progress line; see docs"),
        refused("Stopper", "pass a function to RunConfig(stop=...), or return from the training function"),
    ),
    "ray.tune.callback": module(adapted(_CALLBACKS, "Callback=TuneCallback", "", v1=True)),
    "ray.tune.logger": module(
        adapted(_CALLBACKS, "LoggerCallback", "called for the one trial that a trainer is", v1=True),
        adapted(_LOGGERS, "JsonLoggerCallback CSVLoggerCallback", "the files are always written", v1=True),
        adapted(_LOGGERS, "TBXLoggerCallback", "by trireme.integrations.tensorboard", v1=True),
        refused(
            "Logger UnifiedLogger JsonLogger CSVLogger TBXLogger NoopLogger pretty_print", "derive from LoggerCallback"
        ),
        refused("AimLoggerCallback CometLoggerCallback", "use a UserCallback; see docs/trackers.md"),
    ),
    "ray.tune.integration": module(),
    "ray.tune.integration.ray_train": module(refused("TuneReportCallback", _NO_TUNER)),
    "ray.tune.schedulers": refused_module(_NO_TUNER),
    "ray.tune.search": refused_module(_NO_TUNER),
    "ray.tune.stopper": refused_module("pass a dict or a function to RunConfig(stop=...)"),
    "ray.tune.tuner": refused_module(_NO_TUNER),
    "ray.tune.experiment": module(same("trireme.compat.ray._trial", "Trial"), refused("Experiment", _NO_TUNER)),
    "ray.tune.execution": module(),
    "ray.tune.execution.placement_groups": module(
        adapted("trireme.compat.ray._placement", "PlacementGroupFactory", "", v1=True)
    ),
    "ray.tune.syncer": module(_CONFIGS),
    "ray.tune.progress_reporter": refused_module("a run has its own progress line"),
    **{f"ray.tune.{name}": refused_module(_NO_TUNER) for name in _TUNERS_OWN},
}

TUNE: dict[str, Module] = {
    **_PACKAGES,
    **inside("ray.tune.experiment", _PACKAGES["ray.tune.experiment"], "trial"),
    **inside("ray.tune.logger", _PACKAGES["ray.tune.logger"], "aim comet csv json logger tensorboardx"),
    "ray.tune.logger.mlflow": AIR["ray.air.integrations.mlflow"],
    "ray.tune.logger.wandb": AIR["ray.air.integrations.wandb"],
}
