"""A broker, as its admin listener sees it."""

from collections.abc import Mapping, Sequence
from typing import Any

from kraftpy.broker.lifecycle_states import RUNNING
from kraftpy.broker.node import BrokerNodeRunning
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.network.places import Place
from kraftpy.wire.apis import api_name


class BrokerSource:
    """A broker."""

    role = "broker"

    def __init__(self, node: BrokerNodeRunning) -> None:
        self._node = node
        self.node_id = node.config.broker_id
        self.cluster_id = node.cluster_id
        self.metadata_dir = node.config.metadata_dir
        self.controllers: Sequence[Place] = [
            Place(place.host, place.port) for place in node.config.controllers
        ]

    @property
    def image(self) -> ClusterImage:
        return self._node.cache.image

    def state(self) -> str:
        return self._node.lifecycle.state.name.lower()

    def is_ready(self) -> bool:
        return self._node.lifecycle.state is RUNNING

    def _led(self) -> list[Any]:
        return [each for each in self._node.manager.partitions() if each.replica.is_leader]

    def numbers(self) -> Mapping[str, float]:
        traffic = self._node.server.traffic
        led = self._led()
        hosted = list(self._node.manager.partitions())
        image = self.image
        lagging = 0
        for each in led:
            partition = image.partition(each.topic_id, each.index)
            lagging += partition is not None and len(partition.isr) < len(partition.replicas)
        return {
            "kafka_server_replicamanager_leadercount": len(led),
            "kafka_server_replicamanager_partitioncount": len(hosted),
            "kafka_server_replicamanager_underreplicatedpartitions": lagging,
            "kafka_server_broker_metadata_metrics_last_applied_record_offset": image.end_offset - 1,
            "kraftpy_network_received_bytes_total": traffic.received,
            "kraftpy_network_sent_bytes_total": traffic.sent,
            "kafka_server_brokertopicmetrics_messagesin_total": self._node.manager.intake.records,
            "kafka_server_brokertopicmetrics_bytesin_total": self._node.manager.intake.bytes,
            "kafka_server_brokerstate": int(self._node.lifecycle.state),
            "kafka_server_socket_server_metrics_connection_count": (
                self._node.server.connection_count
            ),
        }

    def requests(self) -> Mapping[str, int]:
        requests = self._node.server.traffic.requests
        return {api_name(key): count for key, count in sorted(requests.items())}

    def details(self) -> Mapping[str, Any]:
        return {
            "broker_epoch": self._node.lifecycle.broker_epoch,
            "address": f"{self._node.config.listen.host}:{self._node.port}",
            "log_dirs": list(self._node.config.log_dirs),
            "requests": dict(self.requests()),
        }
