"""The line that says what runs the script."""

from __future__ import annotations

from trireme._core import version
from trireme.compat.ray._names import RAY_VERSION


def banner() -> str:
    return (
        f"trireme {version} runs this script in place of Ray {RAY_VERSION}: ray, ray.train, ray.air, ray.data, "
        "ray.tune and ray.remote are Trireme's; differences: docs/ray_compat.md"
    )
