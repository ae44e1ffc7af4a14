"""Horovod: a trainer whose workers find each other without ssh, mpirun or horovodrun."""

from trireme._preload import frameworks_of_main
from trireme._runtime import warm_up
from trireme.horovod._config import HorovodConfig
from trireme.horovod._trainer import HorovodTrainer

__all__ = ["HorovodConfig", "HorovodTrainer"]

# The warm process imports Horovod, and the frameworks that the script names, in parallel with the setup of the script.
warm_up([*HorovodConfig.preload, *frameworks_of_main()])
