"""Blocks of custom sources and sinks; names as in ray.data.block."""

from trireme.data._datasink import BlockAccessor
from trireme.data._datasource import Block, BlockMetadata

__all__ = ["Block", "BlockAccessor", "BlockMetadata"]
