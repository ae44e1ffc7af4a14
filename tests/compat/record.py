"""Runs the scripts under real Ray and stores what each prints in recordings/.

python tests/compat/record.py            all scripts, one Ray for each version of Ray Train
python tests/compat/record.py NAME...    only these scripts

Needs the environment of the frameworks (make frameworks), which has Ray. Takes several minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = sorted(path.stem for path in (HERE / "scripts").glob("*.py") if path.stem != "compat_record")


def main(asked: list[str]) -> int:
    chosen = asked or SCRIPTS
    failed = 0
    for v1 in (False, True):
        names = [name for name in chosen if name.startswith("v1_") == v1]
        if not names:
            continue
        with tempfile.TemporaryDirectory() as storage:
            environment = {
                **os.environ,
                "RAY_TRAIN_V2_ENABLED": "0" if v1 else "1",
                "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
                "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
                # Ray starts workers at 15, where they make no progress beside other work.
                "RAY_worker_niceness": "0",
                "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_AUTH_MODE": "disabled",
                "RAY_AIR_NEW_OUTPUT": "0",
                "COMPAT_STORAGE": storage,
                "PYTHONPATH": str(HERE / "scripts"),
            }
            command = [sys.executable, __file__, "--in-ray", *names]
            failed += subprocess.run(command, env=environment).returncode != 0
    return int(failed > 0)


def in_ray(names: list[str]) -> int:
    import ray

    ray.init(num_cpus=8, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    failed = 0
    for name in names:
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                runpy.run_path(str(HERE / "scripts" / f"{name}.py"), run_name="__main__")
        except BaseException:
            traceback.print_exc()
        lines = [line for line in output.getvalue().splitlines() if line.startswith("RECORD ")]
        print(name, "recorded" if lines else "FAILED", flush=True)
        if not lines:
            failed += 1
            continue
        text = json.dumps(json.loads(lines[-1][7:]), indent=1, sort_keys=True)
        (HERE / "recordings" / f"{name}.json").write_text(text + "\n")
    ray.shutdown()
    return failed


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(in_ray(words[1:]) if words[:1] == ["--in-ray"] else main(words))
