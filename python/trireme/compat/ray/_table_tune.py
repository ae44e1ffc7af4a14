"""ray.tune: what trainers need of it. Trireme has no tuner yet."""

from __future__ import annotations

from trireme.compat.ray._names import Module, adapted, inside, module, refused, refused_module, same
from trireme.compat.ray._table_air import AIR
from trireme.compat.ray._table_train import _CHECKPOINT, _CONFIGS, _RESULT, _WORKER

_NO_TUNER = "Tuner runs a grid or random search; use Optuna around trainer.fit() for other algorithms"
_USE_TUNER = "use tune.Tuner(trainer or function, param_space=...)"
_TUNERS_OWN = (
    "analysis",
    "integration.keras",
    "integration.lightgbm",
    "integration.pytorch_lightning",
    "integration.xgboost",
    "registry",
    "result",
    "trainable",
    "tune",
    "utils",
)
_SCHEDULERS = (
    "ASHAScheduler AsyncHyperBandScheduler HyperBandForBOHB HyperBandScheduler MedianStoppingRule PB2 "
    "PopulationBasedTraining PopulationBasedTrainingReplay ResourceChangingScheduler TrialScheduler create_scheduler"
)
_ALGORITHMS = (
    *(f"schedulers.{name}" for name in ("async_hyperband", "hb_bohb", "hyperband", "median_stopping_rule", "pb2")),
    *(f"schedulers.{name}" for name in ("pbt", "resource_changing_scheduler")),
    *(f"search.{name}" for name in ("ax", "bayesopt", "bohb", "hebo", "hyperopt", "nevergrad", "optuna", "zoopt")),
    *(f"search.{name}" for name in ("concurrency_limiter", "repeater", "search_algorithm", "search_generator")),
    "search.searcher",
)
_CALLBACKS = "trireme.compat.ray._callbacks"
_LOGGERS = "trireme.compat.ray._loggers"
_TUNE = "trireme.compat.ray._tune"
_SPACE = adapted(
    f"{_TUNE}._space",
    "choice uniform quniform loguniform qloguniform randint qrandint lograndint qlograndint randn qrandn sample_from "
    "grid_search",
    "draws the same values as Ray",
)
_TUNER = adapted(f"{_TUNE}._tuner", "Tuner TuneConfig", "trials run one after the other, as a grid or random search")
_GRID = adapted(f"{_TUNE}._grid", "ResultGrid", "")

_PACKAGES: dict[str, Module] = {
    "ray.tune": module(
        _CONFIGS,
        _CHECKPOINT,
        _RESULT,
        {name: _WORKER[name] for name in ("report", "get_checkpoint", "get_context")},
        adapted(
            "trireme.compat.ray._configs",
            "FailureConfig=TuneFailureConfig RunConfig=TuneRunConfig",
            "fields of both versions",
        ),
        adapted(_CALLBACKS, "Callback=TuneCallback", "called for every trial"),
        adapted("trireme.compat.ray._placement", "PlacementGroupFactory", ""),
        _TUNER,
        _GRID,
        adapted(f"{_TUNE}._tuner", "with_parameters with_resources TuneError", "resources have no effect"),
        adapted(f"{_TUNE}._function", "TuneContext=TrialContext", ""),
        _SPACE,
        refused("run run_experiments Experiment Trainable register_trainable register_env", _USE_TUNER),
        refused(
            "ExperimentAnalysis", "Tuner.fit() returns a ResultGrid; Result.from_path() reads the folder of a trial"
        ),
        refused("create_scheduler create_searcher", _NO_TUNER),
        refused("ResumeConfig", "create the Tuner again with the configurations that are left"),
        refused("CLIReporter JupyterNotebookReporter ProgressReporter", "a run has its own progress line; see docs"),
        refused("Stopper", "pass a function to RunConfig(stop=...), or return from the training function"),
    ),
    "ray.tune.callback": module(adapted(_CALLBACKS, "Callback=TuneCallback", "called for every trial")),
    "ray.tune.logger": module(
        adapted(_CALLBACKS, "LoggerCallback", "called for every trial"),
        adapted(_LOGGERS, "JsonLoggerCallback CSVLoggerCallback", "the files are always written"),
        adapted("trireme.compat.ray._tensorboard", "TBXLoggerCallback", "events in the folder of the trial"),
        refused(
            "Logger UnifiedLogger JsonLogger CSVLogger TBXLogger NoopLogger pretty_print", "derive from LoggerCallback"
        ),
        refused("AimLoggerCallback CometLoggerCallback", "use a UserCallback; see docs/trackers.md"),
    ),
    "ray.tune.integration": module(),
    "ray.tune.integration.ray_train": module(
        adapted(f"{_TUNE}._function", "TuneReportCallback", "reports to the trial that runs in the driver")
    ),
    "ray.tune.schedulers": module(
        adapted(f"{_TUNE}._tuner", "FIFOScheduler", "the only scheduler"), refused(_SCHEDULERS, _NO_TUNER)
    ),
    "ray.tune.schedulers.trial_scheduler": module(
        adapted(f"{_TUNE}._tuner", "FIFOScheduler", "the only scheduler"), refused("TrialScheduler", _NO_TUNER)
    ),
    "ray.tune.search": module(
        adapted(f"{_TUNE}._tuner", "BasicVariantGenerator", "the only search"),
        _SPACE,
        refused("ConcurrencyLimiter Repeater Searcher SearchAlgorithm SearchGenerator create_searcher", _NO_TUNER),
        refused("UNDEFINED_METRIC_MODE UNDEFINED_SEARCH_SPACE UNRESOLVED_SEARCH_SPACE", "messages of Ray's searchers"),
    ),
    "ray.tune.search.basic_variant": module(adapted(f"{_TUNE}._tuner", "BasicVariantGenerator", "the only search")),
    "ray.tune.search.sample": module(_SPACE),
    "ray.tune.search.variant_generator": module(_SPACE),
    "ray.tune.stopper": refused_module("pass a dict or a function to RunConfig(stop=...)"),
    "ray.tune.tuner": module(_TUNER),
    "ray.tune.tune_config": module(_TUNER),
    "ray.tune.result_grid": module(_GRID),
    "ray.tune.error": module(adapted(f"{_TUNE}._tuner", "TuneError", "")),
    "ray.tune.context": module(adapted(f"{_TUNE}._function", "TuneContext=TrialContext", "")),
    "ray.tune.experiment": module(same("trireme.compat.ray._trial", "Trial"), refused("Experiment", _NO_TUNER)),
    "ray.tune.execution": module(),
    "ray.tune.execution.placement_groups": module(
        adapted("trireme.compat.ray._placement", "PlacementGroupFactory", "", v1=True)
    ),
    "ray.tune.syncer": module(_CONFIGS),
    "ray.tune.progress_reporter": refused_module("a run has its own progress line"),
    **{f"ray.tune.{name}": refused_module(_USE_TUNER) for name in _TUNERS_OWN},
    **{f"ray.tune.{name}": refused_module(_NO_TUNER) for name in _ALGORITHMS},
}

TUNE: dict[str, Module] = {
    **_PACKAGES,
    **inside("ray.tune.experiment", _PACKAGES["ray.tune.experiment"], "trial"),
    **inside("ray.tune.logger", _PACKAGES["ray.tune.logger"], "aim comet csv json logger tensorboardx"),
    "ray.tune.logger.mlflow": AIR["ray.air.integrations.mlflow"],
    "ray.tune.logger.wandb": AIR["ray.air.integrations.wandb"],
}
