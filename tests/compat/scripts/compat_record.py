"""What a script shows of its results, the same under Ray and under Trireme: one JSON line."""

import json
import math
import os
import re

STORAGE = os.environ.get("COMPAT_STORAGE", "/tmp/compat_storage")
_TIME = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(\.\d+)?")
_TRIAL = re.compile(r"[0-9a-f]{5}_0000\d")
# What the first version of Ray Train adds to metrics, and differs from run to run.
_VOLATILE = [
    "timestamp",
    "date",
    "time_this_iter_s",
    "time_total_s",
    "pid",
    "hostname",
    "node_ip",
    "time_since_restore",
    "trial_id",
    "experiment_tag",
    "config",
]


def record(**values):
    print("RECORD " + json.dumps({name: plain(value) for name, value in values.items()}, sort_keys=True), flush=True)


def described(result, first_version=False):
    """The fields of a Result."""
    frame = result.metrics_dataframe
    shown = {
        "metrics": _metrics(result.metrics),
        "checkpoint": name_of(result.checkpoint),
        "error": error_name(result.error),
        "path": os.path.relpath(result.path, STORAGE) if result.path else None,
        "best": [[name_of(checkpoint), _metrics(metrics)] for checkpoint, metrics in result.best_checkpoints or []],
        "rows": None if frame is None else len(frame),
    }
    if first_version:
        shown["keys"] = sorted(result.metrics)
        shown["files"] = sorted(
            name
            for name in os.listdir(result.path)
            if name.partition(".")[0] in ("error", "params", "progress", "result")
        )
    else:
        shown["columns"] = None if frame is None else sorted(frame.columns)
        shown["value"] = result.return_value
    return shown


def error_name(error):
    """Ray derives RayTaskError(ValueError) from both."""
    return re.sub(r"^RayTaskError\((.*)\)$", r"\1", type(error).__name__)


def name_of(checkpoint):
    return None if checkpoint is None else os.path.basename(checkpoint.path)


def plain(value):
    if isinstance(value, float):
        return repr(value) if not math.isfinite(value) else float(f"{value:.5g}")
    if isinstance(value, str):
        return _TRIAL.sub("<trial>", _TIME.sub("<time>", value)).replace(STORAGE, "<storage>")
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int)) else plain(str(value))


def _metrics(metrics):
    return {name: value for name, value in (metrics or {}).items() if name not in _VOLATILE}
