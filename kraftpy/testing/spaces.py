"""A space of its own for each test in a cluster that many share.

Topics and groups of a space have names that nobody else has, so that tests neither see nor disturb
each other, at the price of creating a topic instead of starting a cluster. What a space has created
is deleted at its end. Whoever asks the cluster for all its topics sees those of others, too; a test
that must be alone takes a cluster of its own.
"""

import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from kraftpy.testing.cluster import Cluster

_TIMEOUT_S: Final = 30.0


class Space:
    """Names, and the topics that were made under them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.prefix = f"t{uuid.uuid4().hex[:10]}-"
        self._topics: list[str] = []

    def __enter__(self) -> "Space":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """What Kafka clients take as `bootstrap.servers`."""
        return self.cluster.bootstrap_servers

    def name(self, name: str) -> str:
        """A name that only this space has: for a topic that is yet to be made, an id, anything."""
        return self.prefix + name

    def group(self, name: str = "group") -> str:
        """The id of a consumer group of this space."""
        return self.name(name)

    def topic(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and give its whole name."""
        from confluent_kafka.cimpl import NewTopic

        whole = self.name(name)
        asked = NewTopic(
            whole,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
        )
        self.cluster.admin.create_topics([asked])[whole].result(_TIMEOUT_S)
        self._topics.append(whole)
        return whole

    def close(self) -> None:
        """Delete the topics, and wait until that is decided."""
        if self._topics:
            deleted = self.cluster.admin.delete_topics(self._topics)
            for future in deleted.values():
                future.result(_TIMEOUT_S)
        self._topics = []
