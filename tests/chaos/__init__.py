"""Trainings that things happen to, and what must hold after. `make chaos`; CONTRIBUTING.md tells more."""
