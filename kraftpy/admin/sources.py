"""What the admin listener knows of its node: one view for controllers and brokers alike.

Everything is read where it lies, in the node's event loop, and costs the node nothing while nobody
asks. How the quorum is, only its leader knows; so it is asked over the wire, by whichever node is
looked at. The two kinds of nodes are in modules of their own: neither loads the other.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kraftpy.metadata_log.image import ClusterImage
from kraftpy.network.places import Place


class NodeSource(Protocol):
    """A node that is running."""

    node_id: int
    role: str
    cluster_id: str
    metadata_dir: str
    controllers: Sequence[Place]

    @property
    def image(self) -> ClusterImage: ...

    def state(self) -> str:
        """In one word."""
        ...

    def is_ready(self) -> bool:
        """Whether it does what it is there for."""
        ...

    def numbers(self) -> Mapping[str, float]:
        """Counters and gauges of this node alone, under Kafka's names for them."""
        ...

    def requests(self) -> Mapping[str, int]:
        """How many of each API it took."""
        ...

    def details(self) -> Mapping[str, Any]:
        """What only this kind of node has to say."""
        ...
