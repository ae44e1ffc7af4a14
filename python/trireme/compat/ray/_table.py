"""All modules of Ray: what each name is served by. docs/ray_compat.md and --ray-compat=report are made from it."""

from __future__ import annotations

from trireme.compat.ray._names import Module
from trireme.compat.ray._table_air import AIR
from trireme.compat.ray._table_core import CORE
from trireme.compat.ray._table_data import DATA
from trireme.compat.ray._table_refused import REFUSED
from trireme.compat.ray._table_train import TRAIN
from trireme.compat.ray._table_tune import TUNE

MODULES: dict[str, Module] = {**CORE, **TRAIN, **AIR, **DATA, **TUNE, **REFUSED}
