"""What monitors scrape, in Prometheus' text format; Kafka's names, as its JMX exporter writes them.

Nothing is counted for this: at each scrape the node is asked for its numbers, and the cluster's are
computed from its image, once per image.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kraftpy import __version__
from kraftpy.admin.cluster_view import health, loads
from kraftpy.metadata_log.image import ClusterImage

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"

# Every metric that a node may have, with its meaning. deploy/ and its tests rely on this table.
MEANINGS: Final[Mapping[str, str]] = {
    f"{_CONTROLLER}activecontrollercount": "1 on the active controller, 0 on the others",
    f"{_CONTROLLER}globaltopiccount": "Topics of the cluster, as this node has replayed it",
    f"{_CONTROLLER}globalpartitioncount": "Partitions of the cluster",
    f"{_CONTROLLER}offlinepartitionscount": "Partitions without a leader",
    f"{_CONTROLLER}preferredreplicaimbalancecount": "Partitions not led by their first replica",
    f"{_CONTROLLER}activebrokercount": "Brokers that may lead",
    f"{_CONTROLLER}fencedbrokercount": "Brokers that are registered and may not lead",
    "kraftpy_cluster_under_replicated_partitions": "Partitions with replicas that are not in sync",
    "kraftpy_cluster_under_min_isr_partitions": "Partitions that refuse acks=all",
    "kraftpy_cluster_reassigning_partitions": "Partitions whose replicas are being moved",
    "kraftpy_cluster_broker_leaders": "Partitions that a broker leads",
    "kafka_server_raft_metrics_current_epoch": "The epoch of the quorum",
    "kafka_server_raft_metrics_current_leader": "Who leads the quorum; -1: nobody known",
    "kafka_server_raft_metrics_high_watermark": "Where the committed metadata ends",
    "kafka_server_raft_metrics_log_end_offset": "Where this controller's metadata log ends",
    "kraftpy_metadata_log_start_offset": "Where this controller's metadata log begins",
    "kraftpy_metadata_end_offset": "Where the metadata ends that this node has replayed",
    "kafka_server_broker_metadata_metrics_last_applied_record_offset": (
        "The last metadata record that this broker acts on"
    ),
    "kafka_server_replicamanager_leadercount": "Partitions that this broker leads",
    "kafka_server_replicamanager_partitioncount": "Partitions that this broker hosts",
    "kafka_server_replicamanager_underreplicatedpartitions": (
        "Partitions led here with replicas that are not in sync"
    ),
    "kafka_server_brokertopicmetrics_messagesin_total": "Records that producers appended here",
    "kafka_server_brokertopicmetrics_bytesin_total": "Bytes that producers appended here",
    "kafka_server_socket_server_metrics_connection_count": "Connections of clients and brokers",
    "kafka_server_brokerstate": "Kafka's number for the state of this broker; 3 is running",
    "kafka_network_requestmetrics_requests_total": "Requests that this broker took, by API",
    "kraftpy_network_received_bytes_total": "Bytes that this broker received",
    "kraftpy_network_sent_bytes_total": "Bytes that this broker sent",
    "kraftpy_node_info": "Always 1; what this node is",
}
_TOTAL: Final = "_total"


class _Scrape:
    """One scrape's metrics, as prometheus_client collects them."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def metric(name: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    return metrics_of(name, [(labels or {}, value)])


def metrics_of(name: str, samples: list[tuple[Mapping[str, str], float]]) -> Metric:
    """A metric of the table with its samples; a name that ends in _total is a counter."""
    kind = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
    names = list(samples[0][0]) if samples else []
    family = kind(name.removesuffix(_TOTAL), MEANINGS[name], labels=names)
    for labels, value in samples:
        family.add_metric(list(labels.values()), value)
    return family


def cluster_numbers(image: ClusterImage) -> dict[str, float]:
    """Of the whole cluster, from one node's image."""
    counts = health(image)
    fenced = sum(broker.fenced for broker in image.brokers.values())
    return {
        f"{_CONTROLLER}globaltopiccount": counts.topics,
        f"{_CONTROLLER}globalpartitioncount": counts.partitions,
        f"{_CONTROLLER}offlinepartitionscount": counts.offline,
        f"{_CONTROLLER}preferredreplicaimbalancecount": counts.not_preferred,
        f"{_CONTROLLER}activebrokercount": len(image.brokers) - fenced,
        f"{_CONTROLLER}fencedbrokercount": fenced,
        "kraftpy_cluster_under_replicated_partitions": counts.under_replicated,
        "kraftpy_cluster_under_min_isr_partitions": counts.under_min_isr,
        "kraftpy_cluster_reassigning_partitions": counts.reassigning,
        "kraftpy_metadata_end_offset": image.end_offset,
    }


class Metrics:
    """Renders scrapes; keeps what was computed from the last image. One scrape at a time."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._of_cluster: list[Metric] = []

    def render(
        self,
        image: ClusterImage,
        numbers: Mapping[str, float],
        requests: Mapping[str, int],
        node: Mapping[str, str],
    ) -> bytes:
        """The text of one scrape; walks over all partitions when the image is new."""
        if image is not self._image:
            self._of_cluster = self._cluster(image)
            self._image = image
        found = [*self._of_cluster, *(metric(name, value) for name, value in numbers.items())]
        by_api: list[tuple[Mapping[str, str], float]] = [
            ({"request": name}, count) for name, count in requests.items()
        ]
        if by_api:
            found.append(metrics_of("kafka_network_requestmetrics_requests_total", by_api))
        found.append(metric("kraftpy_node_info", 1, {**node, "version": __version__}))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(found))
        return generate_latest(registry)

    @staticmethod
    def _cluster(image: ClusterImage) -> list[Metric]:
        found = [metric(name, value) for name, value in cluster_numbers(image).items()]
        led: list[tuple[Mapping[str, str], float]] = [
            ({"broker": str(broker_id)}, load.leads) for broker_id, load in loads(image).items()
        ]
        if led:
            found.append(metrics_of("kraftpy_cluster_broker_leaders", led))
        return found
