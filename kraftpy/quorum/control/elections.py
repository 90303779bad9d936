"""Who leads: what a broker's coming and going means, ElectLeaders, and the balance. Pure.

Strategies: a partition whose leader goes away gets another (offline, controlled shutdown); one
whose first replica is in sync gets it back (preferred, on request or when a broker's share of lost
leaderships is too large); one that has nobody in sync gets any live replica, but only where the
topic allows it or the operator asks (unclean).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import ClusterImage, Partition, Topic
from kraftpy.metadata_log.records import PartitionChangeRecord
from kraftpy.quorum.control.activity import is_active, is_directory_online
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.partition_change import Election, PartitionChange
from kraftpy.quorum.control.partition_index import PartitionKey
from kraftpy.quorum.control.topic_settings import (
    elr_enabled,
    min_insync_replicas,
    unclean_election_enabled,
)
from kraftpy.types import NO_LEADER, BrokerId
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, VersionRange

# In one decision of the balancer; the next one goes on.
_BALANCED_MAX: Final = 1000
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


def new_change(
    situation: Situation,
    topic: Topic,
    partition_id: int,
    *,
    image: ClusterImage | None = None,
    removed: BrokerId | None = None,
    added: BrokerId | None = None,
) -> PartitionChange:
    """A change of one partition, with nothing changed yet.

    `removed` and `added` are about to stop and to start being active.
    """
    seen = situation.image if image is None else image
    partition = topic.partitions[partition_id]

    def may_lead(replica: BrokerId) -> bool:
        if replica == removed or not (replica == added or is_active(seen, replica)):
            return False
        if replica not in partition.replicas:
            return True
        directory = partition.directories[partition.replicas.index(replica)]
        return is_directory_online(seen, replica, directory)

    return PartitionChange(
        topic_id=topic.topic_id,
        partition_id=partition_id,
        partition=partition,
        may_lead=may_lead,
        min_insync_replicas=min_insync_replicas(seen, situation.settings, topic.name),
        elr_enabled=elr_enabled(seen),
    )


def changes_for_brokers(
    situation: Situation,
    keys: Iterable[PartitionKey],
    *,
    removed: BrokerId | None = None,
    added: BrokerId | None = None,
    unclean: BrokerId | None = None,
    image: ClusterImage | None = None,
) -> Iterator[PartitionChangeRecord]:
    """What partitions become when a broker stops being active (`removed`), starts to be (`added`),
    or came back without what it had acknowledged (`unclean`).

    The image shows none of that yet; it may be another one than the situation's, for a decision of
    several steps.
    """
    seen = situation.image if image is None else image
    gone = {removed, unclean}
    for topic_id, partition_id in keys:
        topic = seen.topics[topic_id]
        change = new_change(
            situation, topic, partition_id, image=seen, removed=removed, added=added
        )
        change.isr = tuple(replica for replica in change.isr if replica not in gone)
        if unclean is not None:
            change.unclean_replicas = frozenset({unclean})
        if unclean_election_enabled(seen, situation.settings, topic.name):
            change.election = Election.UNCLEAN
        record = change.build()
        if record is not None:
            yield record


# -- ElectLeaders -----------------------------------------------------------------------------


def decide_elect_leaders(situation: Situation, message: Any) -> Decision:
    """Preferred or unclean elections of some partitions, or of all that need one."""
    kind = getattr(message, "election_type", _PREFERRED)
    if kind not in (_PREFERRED, _UNCLEAN):
        raise Refused(ErrorCode.invalid_request, f"{kind} is not an election type")
    election = Election.PREFERRED if kind == _PREFERRED else Election.UNCLEAN
    records: list[PartitionChangeRecord] = []
    results: dict[str, list[Values]] = {}
    seen: set[tuple[str, int]] = set()
    for name, partition_id in _asked(situation, message, election):
        if (name, partition_id) in seen:
            continue
        seen.add((name, partition_id))
        code, why, record = _elect(situation, name, partition_id, election)
        if record is not None:
            records.append(record)
        result = {"partition_id": partition_id, "error_code": code, "error_message": why}
        results.setdefault(name, []).append(result)
    response = _answer(ErrorCode.none, results)
    return Decision(records=records, response=response, own=message.topic_partitions is None)


def _asked(situation: Situation, message: Any, election: Election) -> Iterator[tuple[str, int]]:
    if message.topic_partitions is not None:
        for topic in message.topic_partitions:
            for partition_id in topic.partitions:
                yield topic.topic, partition_id
        return
    index = situation.index
    keys = index.not_preferred() if election is Election.PREFERRED else []
    for topic_id, partition_id in sorted(keys + index.leaderless()):
        yield situation.image.topics[topic_id].name, partition_id


def _elect(
    situation: Situation, name: str, partition_id: int, election: Election
) -> tuple[ErrorCode, str | None, PartitionChangeRecord | None]:
    topic = situation.image.topic(name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None:
        why = f"there is no partition {name}-{partition_id}"
        return ErrorCode.unknown_topic_or_partition, why, None
    if _is_content(partition, election):
        return ErrorCode.election_not_needed, "the partition has the leader it needs", None
    change = new_change(situation, topic, partition_id)
    change.election = election
    record = change.build()
    if record is not None and record.leader not in (NO_LEADER, partition.leader):
        return ErrorCode.none, None, record
    if election is Election.PREFERRED:
        why = f"replica {partition.replicas[0]} is not in sync or not active"
        return ErrorCode.preferred_leader_not_available, why, None
    return ErrorCode.eligible_leaders_not_available, "no replica is active", None


def _is_content(partition: Partition, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader == partition.replicas[0]
    return partition.leader != NO_LEADER


def _answer(error_code: ErrorCode, results: dict[str, list[Values]]) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "replica_election_results": [
            {"topic": name, "partition_result": results[name]} for name in sorted(results)
        ],
    }


def _refuse_elect_leaders(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    """Version 0 has room for an error in each partition only."""
    results: dict[str, list[Values]] = {}
    for topic in message.topic_partitions or ():
        results[topic.topic] = [
            {"partition_id": partition_id, "error_code": error_code, "error_message": why}
            for partition_id in topic.partitions
        ]
    return _answer(error_code, results)


# -- what the controller does by itself -------------------------------------------------------


def decide_balance(situation: Situation) -> Decision:
    """Give leadership back to brokers that lost more of it than the settings allow."""
    index, image = situation.index, situation.image
    percentage = situation.settings.leader_imbalance_per_broker_percentage
    keys = index.not_preferred()
    lost: Counter[BrokerId] = Counter(_preferred(image, key) for key in keys)
    records: list[PartitionChangeRecord] = []
    for topic_id, partition_id in keys:
        broker_id = _preferred(image, (topic_id, partition_id))
        if lost[broker_id] * 100 <= percentage * index.preferring(broker_id):
            continue
        change = new_change(situation, image.topics[topic_id], partition_id)
        change.election = Election.PREFERRED
        record = change.build()
        if record is not None and record.leader == broker_id:
            records.append(record)
            if len(records) == _BALANCED_MAX:
                break
    return Decision(records=records, response={}, own=True)


def _preferred(image: ClusterImage, key: PartitionKey) -> BrokerId:
    topic_id, partition_id = key
    return image.topics[topic_id].partitions[partition_id].replicas[0]


def decide_unclean(situation: Situation) -> Decision:
    """Leaders for partitions that have none, as far as their topics allow: a topic's setting may
    have changed since its partitions lost theirs."""
    keys = situation.index.leaderless()
    records = tuple(changes_for_brokers(situation, keys))
    return Decision(records=records, response={}, own=True)


APIS: Final[dict[int, ControlApi]] = {
    apis.ELECT_LEADERS: ControlApi(VersionRange(0, 2), decide_elect_leaders, _refuse_elect_leaders),
}
