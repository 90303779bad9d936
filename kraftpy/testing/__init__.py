"""What tests import: theirs of kraftpy, and a user's of a program that runs on it."""

from kraftpy.testing.simulated_files import PowerLoss, SimulatedFiles

__all__ = ["PowerLoss", "SimulatedFiles"]
