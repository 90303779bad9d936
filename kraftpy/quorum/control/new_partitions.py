"""What new partitions are written as, and whether an assignment by hand can be. Pure.

Rule A7: a new partition has both epochs 0, its ISR is those of its replicas that are active, in
their order, and the first of them leads. There is no new partition without a leader.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from kio.schema.errors import ErrorCode

from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log.fastclass import constructor
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import RECOVERED, PartitionRecord
from kraftpy.quorum.control.activity import is_active
from kraftpy.quorum.control.decision import Refused
from kraftpy.quorum.control.placement import ReplicaPlacer, Replicas, Unplaceable, directory_for
from kraftpy.types import BrokerId, Rng, TopicId, Uuid

T = TypeVar("T")

_new_record = constructor(PartitionRecord)


class PartitionWriter:
    """Makes records of partitions on the brokers of one image."""

    def __init__(self, image: ClusterImage, rng: Rng) -> None:
        self._image = image
        self._rng = rng
        self._placer: ReplicaPlacer | None = None
        self._active = {each: is_active(image, each) for each in image.brokers}
        self._directories = {each: directory_for(broker) for each, broker in image.brokers.items()}
        # Of few brokers there are few lists of replicas: each is looked at once.
        self._known: dict[Replicas, tuple[Replicas, tuple[Uuid, ...]]] = {}

    def place(
        self, count: int, replication_factor: int, after: BrokerId | None = None
    ) -> list[Replicas]:
        """Replicas for `count` partitions; Refused if there are too few brokers."""
        if self._placer is None:
            self._placer = ReplicaPlacer(self._image, self._rng)
        try:
            return self._placer.place(count, replication_factor, after)
        except Unplaceable as problem:
            raise Refused(ErrorCode.invalid_replication_factor, str(problem)) from None

    def check(self, replicas: Replicas, replication_factor: int) -> None:
        """Whether an assignment by hand is possible; Refused says why it is not."""
        why = self._problem(replicas, replication_factor)
        if why is not None:
            raise Refused(ErrorCode.invalid_replica_assignment, why)

    def _problem(self, replicas: Replicas, replication_factor: int) -> str | None:
        if not replicas:
            return "an assignment has no replicas"
        if len(set(replicas)) != len(replicas):
            return f"broker {_repeated(replicas)} is assigned more than once to a partition"
        for broker_id in replicas:
            if broker_id not in self._image.brokers:
                return f"broker {broker_id} of the assignment is not registered"
        if len(replicas) != replication_factor:
            return (
                f"a partition is assigned {len(replicas)} replicas and others of the topic "
                f"have {replication_factor}"
            )
        if not any(self._active[broker_id] for broker_id in replicas):
            return f"all of brokers {list(replicas)} are fenced or shutting down"
        return None

    def records(
        self, topic_id: TopicId, first: int, placements: Sequence[Replicas]
    ) -> list[PartitionRecord]:
        """Partitions `first`, `first` + 1 and so on."""
        records = []
        for partition_id, replicas in enumerate(placements, start=first):
            found = self._known.get(replicas)
            if found is None:
                found = self._known[replicas] = self._isr_and_directories(replicas)
            isr, directories = found
            records.append(
                _new_record(
                    partition_id,
                    topic_id,
                    replicas,
                    isr,
                    (),  # removing
                    (),  # adding
                    isr[0],
                    RECOVERED,
                    0,  # leader epoch
                    0,  # partition epoch
                    directories,
                    (),  # eligible leader replicas
                    (),  # last known ELR
                )
            )
        return records

    def _isr_and_directories(self, replicas: Replicas) -> tuple[Replicas, tuple[Uuid, ...]]:
        isr = tuple(broker_id for broker_id in replicas if self._active[broker_id])
        return isr, tuple(self._directories[broker_id] for broker_id in replicas)


def _repeated(replicas: Replicas) -> BrokerId:
    return next(each for each in replicas if replicas.count(each) > 1)


def check_size(records: int) -> None:
    """A request whose batch would be too large is refused as a whole (KAFKA-14996)."""
    if records > BATCH_RECORDS_MAX:
        raise Refused(
            ErrorCode.policy_violation,
            f"the request needs {records} metadata records, and one request may have "
            f"{BATCH_RECORDS_MAX}; ask for less at a time",
        )


def repeated(names: Iterable[T]) -> set[T]:
    """Those that occur more than once."""
    seen: set[T] = set()
    again: set[T] = set()
    for name in names:
        (again if name in seen else seen).add(name)
    return again
