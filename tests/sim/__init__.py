"""Deterministic simulation of the quorum: `python -m tests.sim --help`."""
