"""A package whose generated code does not fit the installed protobuf: one error that names both, and the remedy."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import trireme
from trireme import ScalingConfig
from trireme.tensorflow import TensorflowTrainer

NEWER = """
from google.protobuf import runtime_version
runtime_version.ValidateProtobufRuntimeVersion(runtime_version.Domain.PUBLIC, 99, 1, 0, "", "newer/rows.proto")
"""
SAME_FILE = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="shared/rows.proto", package="shared")
file.message_type.add(name=__name__.partition(".")[0])
DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
"""


def install(folder: Path, name: str, generated: str, requirement: str) -> None:
    """As pip would do."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    (folder / name / "rows_pb2.py").write_text(generated)
    described = folder / f"{name}-1.2.dist-info"
    described.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.2", f"Requires-Dist: {requirement}"]
    (described / "METADATA").write_text("\n".join(lines))
    (described / "top_level.txt").write_text(name)
    (described / "RECORD").write_text(f"{name}/__init__.py,,\n")


def message_of(folder: Path, *modules: str) -> str:
    def train() -> None:
        import importlib

        sys.path.insert(0, str(folder))
        for module in modules:
            importlib.import_module(module)

    with pytest.raises(trireme.TrainingFailedError) as raised:
        TensorflowTrainer(train, scaling_config=ScalingConfig(num_workers=1)).fit()
    return str(raised.value)


def test_code_that_was_generated_for_a_newer_protobuf(tmp_path: Path) -> None:
    install(tmp_path, "newer", NEWER, "protobuf<100,>=99.1")
    message = message_of(tmp_path, "newer.rows_pb2")
    assert f"newer 1.2 cannot be imported with protobuf {version('protobuf')}: Detected incompatible" in message
    assert 'it needs protobuf<100,>=99.1: pip install "protobuf<100,>=99.1"' in message


def test_two_packages_that_register_the_same_file(tmp_path: Path) -> None:
    for name in ("first", "second"):
        install(tmp_path, name, SAME_FILE, "protobuf")
    message = message_of(tmp_path, "first.rows_pb2", "second.rows_pb2")
    assert "second 1.2 cannot be imported with protobuf" in message
    assert "first 1.2 has registered it too: import only one of them in a training function" in message
