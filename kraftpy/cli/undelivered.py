"""Why a message has not been acknowledged in time: what the cluster says of its partition.

A client that gives up knows only that time is over. The cluster knows more: a partition may have no
leader, or fewer replicas in sync than acks=all wants. Whoever cannot be asked cannot be reached.
"""

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource, PartitionMetadata

from kraftpy.cli.client import Connection

_ASK_S = 5.0
_MIN_IN_SYNC = "min.insync.replicas"


def why_not(
    connection: Connection, producer: Producer, topic: str, partition: int | None, error: KafkaError
) -> str:
    """One line for a message that was not acknowledged."""
    if error.code() not in (KafkaError._MSG_TIMED_OUT, KafkaError._UNKNOWN_PARTITION):
        return str(connection.refused(error))
    try:
        found = producer.list_topics(topic, timeout=_ASK_S).topics[topic]
    except KafkaException:
        return str(connection.refused(error))
    if found.error is not None:
        return str(found.error.str())
    if error.code() == KafkaError._UNKNOWN_PARTITION:
        return f"{topic} has the partitions 0 to {len(found.partitions) - 1}, not {partition}"
    asked = [partition] if partition in found.partitions else sorted(found.partitions)
    minimum = _min_in_sync(connection, topic)
    for each in asked:
        why = _of_partition(found.partitions[each], minimum)
        if why:
            return f"{topic}-{each} {why}"
    return f"no acknowledgement within {connection.timeout_s:g} s"


def _of_partition(partition: PartitionMetadata, minimum: int) -> str:
    if partition.leader < 0:
        return "has no leader"
    in_sync = sorted(partition.isrs)
    minimum = min(minimum, len(partition.replicas))  # Brokers do not ask for more than there are.
    if len(in_sync) < minimum:
        listed = ",".join(map(str, in_sync))
        return f"has only {len(in_sync)} in sync ({listed}), and {_MIN_IN_SYNC} is {minimum}"
    return ""


def _min_in_sync(connection: Connection, topic: str) -> int:
    """0 if nobody can tell."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        (future,) = connection.admin().describe_configs([resource], request_timeout=_ASK_S).values()
        value = future.result(_ASK_S)[_MIN_IN_SYNC].value
    except (KafkaException, KeyError, TimeoutError):
        return 0
    return int(value) if value else 0
