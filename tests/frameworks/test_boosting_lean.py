"""Workers that run no code of the user import the libraries without scikit-learn and pandas; all others with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import boosting
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_boosting_failures import FILES, PARAMS, TRAINERS

import trireme

LIBRARIES = ("xgboost", "lightgbm")


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_lean_import(library: str) -> None:
    code = f"""
import sys
from trireme._boosting._lean_import import import_lean
import_lean({library!r})
assert {library!r} in sys.modules
assert "sklearn" not in sys.modules and "pandas" not in sys.modules
import sklearn, pandas  # can be imported later
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_library_that_needs_what_is_hidden_is_imported_with_it(tmp_path: Path) -> None:
    (tmp_path / "needy").mkdir()
    (tmp_path / "needy" / "__init__.py").write_text("import needy.first\nimport sklearn\n")
    (tmp_path / "needy" / "first.py").write_text("")
    code = """
import sys
from trireme._boosting._lean_import import import_lean
import_lean("needy")
assert not [name for name in sys.modules if name.startswith("needy")]
import needy
assert "sklearn" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def is_lean(library: str, results: Path, **options: Any) -> bool:
    trainer = boosting.trainer(TRAINERS[library], PARAMS[library], results, num_boost_round=1, **options)
    trainer.fit()
    return bool(trainer.backend_config._lean)


@pytest.mark.parametrize("library", LIBRARIES)
def test_which_workers_are_lean(library: str, results: Path) -> None:
    def use_estimator(batch: pa.Table) -> pa.Table:
        """An estimator is usable where the user's code runs."""
        import lightgbm
        import xgboost

        kind = xgboost.XGBRegressor if library == "xgboost" else lightgbm.LGBMRegressor
        assert kind(n_estimators=3).get_params()["n_estimators"] == 3
        return batch

    assert is_lean(library, results)
    mapped = {
        name: dataset.map_batches(use_estimator, batch_format="pyarrow")
        for name, dataset in boosting.datasets().items()
    }
    assert not is_lean(library, results, datasets=mapped)
    assert not is_lean(library, results, callbacks=[boosting.Seen()])


SCRIPT = """
import sys
import trireme
from trireme import RunConfig, ScalingConfig
from trireme.{library} import {trainer}

result = {trainer}(
    params={params},
    label_column="label",
    num_boost_round=6,
    datasets={{"train": trireme.data.read_parquet("train"), "valid": trireme.data.read_parquet("valid")}},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path="results"),
).fit()
assert not {{"xgboost", "lightgbm", "sklearn"}} & sys.modules.keys()
print("stored in", result.checkpoint.path)
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_lean_workers_train_the_same_model(library: str, results: Path, tmp_path: Path) -> None:
    for name, rows, seed in (("train", 3000, 0), ("valid", 800, 1)):
        (tmp_path / name).mkdir()
        pq.write_table(boosting.table(rows, seed), tmp_path / name / "0.parquet", row_group_size=500)
    (tmp_path / "first" / "sklearn").mkdir(parents=True)
    marker = tmp_path / "imported"
    (tmp_path / "first" / "sklearn" / "__init__.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nraise ImportError"
    )
    trainer = TRAINERS[library]
    (tmp_path / "script.py").write_text(
        SCRIPT.format(library=library, trainer=trainer.__name__, params=PARAMS[library])
    )
    env = {name: value for name, value in os.environ.items() if name != "TRIREME_RUN_PRELOAD"}
    env["PYTHONPATH"] = str(tmp_path / "first")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not marker.exists()
    lean = trireme.Checkpoint(done.stdout.split("stored in ")[1].strip())

    read = {name: trireme.data.read_parquet(str(tmp_path / name)) for name in ("train", "valid")}
    result = boosting.trainer(trainer, PARAMS[library], results, datasets=read, callbacks=[boosting.Seen()]).fit()
    assert model_of(lean, library) == model_of(result.checkpoint, library)


def model_of(checkpoint: trireme.Checkpoint, library: str) -> bytes:
    with checkpoint.as_directory() as folder:
        return Path(folder, FILES[library]).read_bytes()
