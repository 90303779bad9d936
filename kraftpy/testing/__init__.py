"""What tests import: theirs of kraftpy, and a user's of a program that runs on it."""

from kraftpy.testing.cluster import Cluster, kraftpy_cluster
from kraftpy.testing.nursery import ClusterFailed
from kraftpy.testing.simulated_files import PowerLoss, SimulatedFiles
from kraftpy.testing.spaces import Space

__all__ = [
    "Cluster",
    "ClusterFailed",
    "PowerLoss",
    "SimulatedFiles",
    "Space",
    "kraftpy_cluster",
]
