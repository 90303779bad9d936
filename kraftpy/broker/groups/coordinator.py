"""The shell around groups: which partitions of __consumer_offsets are led here, and their machines.

When this broker becomes the leader of such a partition it reads the log, waits until all of it is
committed, and only then answers for the groups in it; until then COORDINATOR_LOAD_IN_PROGRESS. When
it is not the leader any more it forgets them, and whoever waits is told NOT_COORDINATOR.

What a machine asks for is carried out here, at once and in order: answers complete the futures of
those who wait, timers go to the one timer, stores to the log, whose outcome comes back.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import assert_never

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.classic_group import ClassicGroup
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.consumer_group import ConsumerGroup
from kraftpy.broker.groups.consumer_topics import ImageTopics, changed_names
from kraftpy.broker.groups.effects import Answer, Effect, StartTimer, StopTimer, Store, TimerKey
from kraftpy.broker.groups.group_log import Ended, GroupLog
from kraftpy.broker.groups.records import LogRecord
from kraftpy.broker.groups.shard import GroupShard
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.broker.timers import Deadline, Timer
from kraftpy.clock import Clock
from kraftpy.errors import KraftError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.metadata_log.topic_names import GROUP_TOPIC
from kraftpy.types import Rng

log = get_logger(__name__)

_NAMES_KEPT = 65_536

Group = ClassicGroup | ConsumerGroup


@lru_cache(_NAMES_KEPT)
def name_hash(name: str) -> int:
    """Java's String.hashCode, made positive as Kafka does it: over UTF-16, in 32 bits."""
    units = name.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


class LedShard:
    """One partition, from the election of this broker to its end."""

    def __init__(self, index: int, epoch: int, group_log: GroupLog, shard: GroupShard) -> None:
        self.index = index
        self.epoch = epoch  # The first one of this leadership.
        self.log = group_log
        self.shard = shard
        self.is_loaded = False
        self.timers: dict[tuple[str, TimerKey], Deadline] = {}
        self.loading: asyncio.Task[None] | None = None


class GroupCoordinator:
    """In the event loop of its broker."""

    def __init__(
        self,
        manager: ReplicaManager,
        config: GroupConfig,
        clock: Clock,
        rng: Rng,
        is_current: Callable[[], bool],
    ) -> None:
        """`is_current`: nobody else can have become the coordinator of what is led here."""
        self.config = config
        self.clock = clock
        self.rng = rng
        self.is_current = is_current
        self._manager = manager
        self._topics = ImageTopics(lambda: manager.image)
        self._loop = asyncio.get_running_loop()
        self._timer = Timer(clock, self._loop)
        self._led: dict[int, LedShard] = {}
        self._timer.after(config.retention_check_ms, self._expire)

    @property
    def image(self) -> ClusterImage:
        return self._manager.image

    # -- finding ------------------------------------------------------------------------------

    def find(self, group_id: str) -> LedShard | ErrorCode:
        """The shard of a group, if it is led and loaded here; else what its members are told."""
        topic = self._manager.image.topic(GROUP_TOPIC)
        if topic is None:
            return ErrorCode.not_coordinator
        led = self._led.get(name_hash(group_id) % len(topic.partitions))
        if led is None or not led.log.is_led:
            return ErrorCode.not_coordinator
        return led if led.is_loaded else ErrorCode.coordinator_load_in_progress

    def led(self) -> Iterator[LedShard]:
        """All that are led here, loaded or not."""
        return (each for _, each in sorted(self._led.items()) if each.log.is_led)

    # -- from one protocol to the other -------------------------------------------------------

    def make_consumers(self, led: LedShard, group_id: str) -> ConsumerGroup | None:
        """The group, for a member of the new protocol; None if the classic one is using it."""
        classic = led.shard.find(group_id)
        group = led.shard.make_consumers(group_id, self.clock.now_ms())
        if classic is not None:
            self.carry_out(led, classic)
        # Before the records of the group: whoever loads them finds one of the two.
        self._append_if_any(led, led.shard.end_classic(group_id) if group is not None else ())
        return group

    def end_consumers(self, led: LedShard, group_id: str) -> bool:
        """Leave the group to the classic protocol; False if the new one is using it."""
        records = led.shard.end_consumers(group_id)
        self._append_if_any(led, records or ())
        return records is not None

    def _append_if_any(self, led: LedShard, records: Sequence[LogRecord]) -> None:
        if records:
            led.log.append(records, partial(_cleaned, led.index, len(records)))

    # -- metadata -----------------------------------------------------------------------------

    def apply(self, before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
        """A subscriber of the metadata, after the ReplicaManager."""
        if changed := changed_names(before, after, changes):
            self._topics.changed(changed)
            for led in self.led():
                for group in led.shard.consumers:
                    group.topics_changed()
        group_topic = after.topic(GROUP_TOPIC)
        old_topic = before.topic(GROUP_TOPIC)
        if old_topic is not None and (
            group_topic is None or group_topic.topic_id != old_topic.topic_id
        ):
            for index in list(self._led):
                self._resign(index)
        if group_topic is not None:
            for index in sorted(changes.topics.get(group_topic.topic_id, ())):
                self._look_at(index)
        names = {
            before.topics[each].name for each in changes.deleted_topics if each in before.topics
        }
        gone = {name for name in names if name not in after.topic_ids} - {GROUP_TOPIC}
        if gone:
            self._topics_deleted(gone)

    def _look_at(self, index: int) -> None:
        """See whether this broker leads a partition, still or newly."""
        hosted = self._manager.find(GROUP_TOPIC, None, index)
        led = self._led.get(index)
        if isinstance(hosted, ErrorCode) or not hosted.replica.is_leader:
            if led is not None:
                self._resign(index)
            return
        epoch = hosted.replica.leading_since_epoch
        if led is not None and led.epoch == epoch and led.log.hosted is hosted:
            return
        if led is not None:
            self._resign(index)
        self._lead(index, epoch, hosted)

    def _lead(self, index: int, epoch: int, hosted: HostedPartition) -> None:
        shard = GroupShard(self.config, self._topics)
        group_log = GroupLog(
            self._manager,
            hosted,
            shard.replay,
            self.clock,
            self._timer,
            self.config.commit_timeout_ms,
        )
        led = self._led[index] = LedShard(index, epoch, group_log, shard)
        led.loading = self._loop.create_task(self._load(led))

    def _resign(self, index: int) -> None:
        led = self._led.pop(index)
        if led.loading is not None:
            led.loading.cancel()
        led.log.close()
        for deadline in led.timers.values():
            deadline.cancel()
        for group in led.shard.machines():
            group.abandon(ErrorCode.not_coordinator)
            for effect in group.drain():
                if isinstance(effect, Answer):
                    _settle(effect)
        if led.shard.groups:
            log.info("groups_unloaded", partition=index, groups=len(led.shard.groups))

    async def _load(self, led: LedShard) -> None:
        started_ms, count = self.clock.monotonic_ms(), 0
        try:
            async for portion in led.log.read_all(self.config.load_bytes):
                for record in portion:
                    if record.key is not None:
                        led.shard.replay(record.key, record.value)
                count += len(portion)
        except KraftError as error:
            log.error("groups_not_loaded", partition=led.index, why=str(error))
            self._manager.take_offline(led.log.hosted, error)
            return
        if not await led.log.until_committed():
            return  # Another broker leads it by now: the metadata that says so is on its way.
        led.is_loaded = True
        led.shard.loaded(self.clock.now_ms())
        for group in led.shard.machines():
            self.carry_out(led, group)
        if count:
            log.info(
                "groups_loaded",
                partition=led.index,
                groups=len(led.shard.groups),
                records=count,
                took_ms=self.clock.monotonic_ms() - started_ms,
            )

    async def close(self) -> None:
        for index in list(self._led):
            self._resign(index)
        self._timer.close()

    # -- effects ------------------------------------------------------------------------------

    def carry_out(self, led: LedShard, group: Group) -> None:
        """Do what the group's machine asks for, until it asks for nothing more."""
        while effects := group.drain():
            for effect in effects:
                self._do(led, group, effect)

    def _do(self, led: LedShard, group: Group, effect: Effect) -> None:
        match effect:
            case Answer():
                _settle(effect)
            case StartTimer(key, delay_ms):
                self._start_timer(led, group, key, delay_ms)
            case StopTimer(key):
                deadline = led.timers.pop((group.group_id, key), None)
                if deadline is not None:
                    deadline.cancel()
            case Store(records, reason):
                stored = partial(self._stored, led, group, reason)
                led.log.append(records, stored, partial(self._ended, led, group))
            case _:
                assert_never(effect)

    def _start_timer(self, led: LedShard, group: Group, key: TimerKey, delay_ms: int) -> None:
        name = (group.group_id, key)
        before = led.timers.get(name)
        if before is not None:
            before.cancel()
        led.timers[name] = self._timer.after(delay_ms, partial(self._fired, led, group, key))

    def _fired(self, led: LedShard, group: Group, key: TimerKey) -> None:
        led.timers.pop((group.group_id, key), None)
        if not led.log.is_led:
            return
        before = len(group.members)
        group.timer_fired(key, self.clock.now_ms())
        if len(group.members) < before:
            log.info("group_members_expired", group=group.group_id, left=len(group.members))
        self.carry_out(led, group)

    def _stored(self, led: LedShard, group: Group, reason: object, error: ErrorCode) -> None:
        if led.log.is_led:
            group.stored(reason, store_error(error), self.clock.now_ms())  # type: ignore[arg-type]
            self.carry_out(led, group)

    def _ended(self, led: LedShard, group: Group) -> None:
        if led.log.is_led and isinstance(group, ConsumerGroup):
            group.ended()
            self.carry_out(led, group)

    async def append(
        self, led: LedShard, records: Sequence[LogRecord], ended: Ended = lambda: None
    ) -> ErrorCode:
        """Append and wait until it is committed, or for as long as offsets.commit.timeout.ms."""
        done: asyncio.Future[ErrorCode] = self._loop.create_future()

        def settle(error: ErrorCode) -> None:
            if not done.done():
                done.set_result(error)

        led.log.append(records, settle, ended)
        return await done

    # -- now and then -------------------------------------------------------------------------

    def _expire(self) -> None:
        """Drop offsets and groups that nobody has used for long."""
        self._timer.after(self.config.retention_check_ms, self._expire)
        now_ms = self.clock.now_ms()
        self._clean(lambda shard: shard.expire(now_ms))

    def _topics_deleted(self, names: set[str]) -> None:
        self._clean(lambda shard: shard.without_topics(names.__contains__))

    def _clean(self, decide: Callable[[GroupShard], list[LogRecord]]) -> None:
        for led in self.led():
            if not led.is_loaded:
                continue
            records = decide(led.shard)
            if records:
                led.log.append(records, partial(_cleaned, led.index, len(records)))


def _cleaned(partition: int, count: int, error: ErrorCode) -> None:
    if error is not ErrorCode.none:
        log.warning("offsets_not_dropped", partition=partition, count=count, why=error.name)


def _settle(answer: Answer) -> None:
    """Who waited may have gone."""
    if not answer.token.done():
        answer.token.set_result(answer.answer)


def store_error(error: ErrorCode) -> ErrorCode:
    """What members are told if an append to the group's log failed, as in Kafka."""
    match error:
        case ErrorCode.none:
            return error
        case (
            ErrorCode.unknown_topic_or_partition
            | ErrorCode.not_enough_replicas
            | ErrorCode.not_enough_replicas_after_append
            | ErrorCode.request_timed_out
        ):
            return ErrorCode.coordinator_not_available
        case ErrorCode.not_leader_or_follower | ErrorCode.kafka_storage_error:
            return ErrorCode.not_coordinator
        case ErrorCode.message_too_large | ErrorCode.record_list_too_large:
            return ErrorCode.invalid_commit_offset_size
        case _:
            return ErrorCode.unknown_server_error
