"""C++ programs whose runs are in remote storage, through trireme::data."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import trireme
from cpp_programs import BUILD
from s3_server import Bucket

PROGRAM = BUILD / "tests/arrow_program"
EXAMPLE = BUILD / "examples/cpp/example_quickstart"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, check=False
    )


def storage(bucket: Bucket) -> str:
    return f"{bucket.uri('cpp')}?region=us-east-1&endpoint_override=127.0.0.1:{bucket.door.port}&scheme=http"


def test_a_run_and_its_continuation_on_another_machine(bucket: Bucket, tmp_path: Path) -> None:
    first = run(PROGRAM, storage(bucket), "3")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "kept 2\n" in first.stdout
    assert "history 3\n" in first.stdout

    second = run(PROGRAM, storage(bucket), "6", TRIREME_STATE_DIR=str(tmp_path / "other"))
    assert second.returncode == 0, second.stdout + second.stderr
    assert "continues at step 3" in second.stdout
    assert "history 6\n" in second.stdout

    # Python reads the files written by C++.
    result = trireme.Result.from_path(bucket.uri("cpp/from_cpp"))
    assert result.metrics == {"step": 5}
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["weights"].tolist() == [0.5, 5.0]
    downloaded = [line for line in second.stdout.splitlines() if line.startswith("downloaded to ")]
    assert not Path(downloaded[0].removeprefix("downloaded to ")).exists(), "the last user removes a download"


@pytest.mark.slow  # the storage has 15 s to recover
def test_a_bucket_that_is_not_there(bucket: Bucket) -> None:
    done = run(PROGRAM, storage(bucket).replace(bucket.name, "no-such-bucket"))
    assert done.returncode == 1
    assert "RunConfig.storage_path: s3://no-such-bucket/cpp/from_cpp cannot be written: " in done.stdout
    assert "The specified bucket does not exist" in done.stdout


def test_without_arrow_the_error_names_the_option(bucket: Bucket) -> None:
    done = run(EXAMPLE, TRIREME_RESULTS="s3://bucket/runs")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert (
        "this program has no file system for 's3'; link trireme::data (find_package(trireme COMPONENTS data))" in said
    )
