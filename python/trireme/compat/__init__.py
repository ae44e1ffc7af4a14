"""Runs scripts that were written for other systems. `trireme.compat.ray`: for Ray Train."""
