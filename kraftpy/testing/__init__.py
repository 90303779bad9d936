"""What tests import: theirs of kraftpy, and a user's of a program that runs on it.

The simulated disk is imported when it is asked for: clusters, which start a process, do without.
"""

from typing import TYPE_CHECKING, Any

from kraftpy.testing.cluster import Cluster, kraftpy_cluster
from kraftpy.testing.nursery import ClusterFailed
from kraftpy.testing.spaces import Space

if TYPE_CHECKING:
    from kraftpy.testing.simulated_files import PowerLoss, SimulatedFiles

__all__ = [
    "Cluster",
    "ClusterFailed",
    "PowerLoss",
    "SimulatedFiles",
    "Space",
    "kraftpy_cluster",
]


def __getattr__(name: str) -> Any:
    if name not in ("PowerLoss", "SimulatedFiles"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kraftpy.testing import simulated_files

    return getattr(simulated_files, name)
