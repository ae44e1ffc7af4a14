"""CMake's search for the header of NCCL, which libtorch does not contain."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cpp_programs import ROOT

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


def find(folder: Path, torch: Path, **environment: str) -> tuple[str, str]:
    """The folder that CMake finds, and its warnings."""
    script = folder / "find.cmake"
    script.write_text(
        f'include("{ROOT}/cmake/nccl.cmake")\ntrireme_find_nccl("{torch}" found)\nmessage(STATUS "found=${{found}}")\n'
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    # Without CMAKE_FIND_ROOT_PATH a header of this machine would be found.
    done = subprocess.run(
        ["cmake", f"-DCMAKE_FIND_ROOT_PATH={folder}", "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY", "-P", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=kept | environment,
    )
    return done.stdout.strip().rpartition("found=")[2], done.stderr


def header_in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "nccl.h").touch()
    return folder


def test_finds_the_header_in_the_pip_package_next_to_torch(tmp_path: Path) -> None:
    torch = tmp_path / "site-packages/torch"
    torch.mkdir(parents=True)
    header = header_in(tmp_path / "site-packages/nvidia/nccl/include")
    found, warnings = find(tmp_path, torch)
    assert Path(found).resolve() == header
    assert warnings == ""


def test_in_the_folder_that_the_environment_names(tmp_path: Path) -> None:
    header = header_in(tmp_path / "nccl/include")
    found, warnings = find(tmp_path, tmp_path / "torch", NCCL_HOME=str(tmp_path / "nccl"))
    assert (Path(found), warnings) == (header, "")


def test_a_missing_header_is_a_warning(tmp_path: Path) -> None:
    found, warnings = find(tmp_path, tmp_path / "torch")
    assert found == ""
    assert "nccl.h was not found: trireme::torch will exchange tensors on GPUs with" in " ".join(warnings.split())
