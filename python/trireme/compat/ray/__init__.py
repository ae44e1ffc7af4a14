"""Runs scripts written for Ray Train: after this import, `import ray` and its submodules give Trireme's replacements.

Write `import trireme.compat.ray` as the first line, or start the script with `trireme run --ray-compat script.py`. Real
Ray is never imported, whether it is installed or not. docs/ray_compat.md lists what is replaced.
"""

from trireme.compat.ray._hook import install as _install
from trireme.compat.ray._refusal import NotInTrireme

__all__ = ["NotInTrireme"]

_install()
