"""The first of the three, with nothing but srun: `srun srun_script.py`."""

import os

import torch.distributed as dist
from stamps import stamp

os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo")
dist.barrier()
stamp(f"fit_0_rank_{dist.get_rank()}")
dist.destroy_process_group()
