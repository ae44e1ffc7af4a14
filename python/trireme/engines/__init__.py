"""Engines other than this machine: adapters for clusters, one module each. docs/engines.md describes how to add one."""
