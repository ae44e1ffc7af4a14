"""The loop under torchrun."""

import sys

import torch.distributed as dist
from loop import serve
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    dist.init_process_group("gloo")
    serve(sys.argv[1], dist.get_rank(), DistributedDataParallel)
    dist.destroy_process_group()
