"""Injects faults into small trainings and checks invariants afterwards. See CONTRIBUTING.md."""
