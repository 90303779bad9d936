"""What answers say, compared with the log and with what others were told.

Called when an answer is given, not when it arrives. An answer that tells nothing of the cluster
(not the controller, throttled, an invalid request) is no subject here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import ClusterImage
from kraftpy.types import BrokerId, TopicId, from_wire_uuid
from kraftpy.wire import apis
from tests.sim.controller.attempt import Attempt
from tests.sim.controller.history import Register

if TYPE_CHECKING:
    from tests.sim.controller.oracles import ControllerOracles

_TOPIC = 2
_CLIENT_METRICS = 16
_CLIENT_METRICS_SOURCE = 7
_CONFIG_NAME = "interval.ms"


class Answers:
    """One check per API that tells something."""

    def __init__(self, oracles: "ControllerOracles") -> None:
        self._oracles = oracles
        self._blocks: set[int] = set()
        self._checks: dict[int, Callable[[Attempt, ErrorCode, Any], None]] = {
            apis.CREATE_TOPICS: self._create_topics,
            apis.DELETE_TOPICS: self._delete_topics,
            apis.CREATE_PARTITIONS: self._create_partitions,
            apis.INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
            apis.DESCRIBE_CONFIGS: self._describe_configs,
            apis.BROKER_REGISTRATION: self._registration,
            apis.ALLOCATE_PRODUCER_IDS: self._producer_ids,
            apis.ALTER_PARTITION: self._alter_partition,
        }

    def check(self, attempt: Attempt, code: ErrorCode, response: Any) -> None:
        found = self._checks.get(attempt.api_key)
        if found is not None:
            found(attempt, code, response)

    # -- registers ------------------------------------------------------------------------

    def register_of(self, attempt: Attempt) -> Register | None:
        """What the request is about, if that is a register."""
        message, oracles = attempt.message, self._oracles
        match attempt.api_key:
            case apis.CREATE_TOPICS | apis.DELETE_TOPICS | apis.CREATE_PARTITIONS:
                name = message.topics[0].name
                return None if name is None else oracles.topics[name]
            case apis.INCREMENTAL_ALTER_CONFIGS | apis.DESCRIBE_CONFIGS:
                resource = message.resources[0]
                found = {_TOPIC: oracles.topics, _CLIENT_METRICS: oracles.configs}.get(
                    resource.resource_type
                )
                return None if found is None else found[resource.resource_name]
        return None

    def _wrote(self, attempt: Attempt) -> None:
        register = self.register_of(attempt)
        if register is not None and attempt.decided:
            # Of several batches none is a register's: requests are about one thing.
            entry = self._oracles.committed_ids.get(attempt.decided[0].proposal.id)
            if entry is not None:
                self._complain(attempt, register.told_write(entry.base, attempt.floor))

    def _saw(self, attempt: Attempt, is_seen: Callable[[Any], bool]) -> None:
        register = self.register_of(attempt)
        if register is not None:
            self._complain(attempt, register.told_read(is_seen, attempt.floor))

    def _complain(self, attempt: Attempt, problem: str | None) -> None:
        if problem is not None:
            self._oracles.violate(
                "linearizable", f"node {attempt.node_id}: {attempt.message}: {problem}"
            )

    def _saw_topic(self, attempt: Attempt, code: ErrorCode) -> None:
        """Whether it is there, by the way."""
        if code in (ErrorCode.none, ErrorCode.topic_already_exists):
            self._saw(attempt, lambda topic_id: topic_id is not None)
        elif code is ErrorCode.unknown_topic_or_partition:
            self._saw(attempt, lambda topic_id: topic_id is None)

    def _create_topics(self, attempt: Attempt, code: ErrorCode, response: Any) -> None:
        if code is not ErrorCode.none:
            self._saw_topic(attempt, code)
        elif attempt.message.validate_only:
            self._saw(attempt, lambda topic_id: topic_id is None)
        else:
            self._wrote(attempt)
            found = from_wire_uuid(response.topics[0].topic_id)
            self._saw(attempt, lambda topic_id: topic_id == found)

    def _delete_topics(self, attempt: Attempt, code: ErrorCode, _response: Any) -> None:
        if code is ErrorCode.none:
            self._wrote(attempt)
        else:
            self._saw_topic(attempt, code)

    def _create_partitions(self, attempt: Attempt, code: ErrorCode, _response: Any) -> None:
        self._saw_topic(attempt, code)

    def _alter_configs(self, attempt: Attempt, code: ErrorCode, _response: Any) -> None:
        resource = attempt.message.resources[0]
        if resource.resource_type == _TOPIC:
            self._saw_topic(attempt, code)
        elif code is ErrorCode.none:
            self._wrote(attempt)
            if not attempt.decided:  # It was so already.
                value = resource.configs[0].value
                self._saw(attempt, lambda state: state == value)

    def _describe_configs(self, attempt: Attempt, code: ErrorCode, response: Any) -> None:
        resource = attempt.message.resources[0]
        if resource.resource_type == _TOPIC:
            self._saw_topic(attempt, code)
        elif code is ErrorCode.none:
            own = [
                each.value
                for each in response.results[0].configs
                if each.name == _CONFIG_NAME and each.config_source == _CLIENT_METRICS_SOURCE
            ]
            value = own[0] if own else None
            self._saw(attempt, lambda state: state == value)

    # -- brokers --------------------------------------------------------------------------

    def _registration(self, attempt: Attempt, code: ErrorCode, response: Any) -> None:
        if code is not ErrorCode.none:
            return
        message, oracles = attempt.message, self._oracles
        life = (BrokerId(message.broker_id), from_wire_uuid(message.incarnation_id))
        if oracles.lives.get(response.broker_epoch) != life:
            oracles.violate(
                "epochs are unique",
                f"broker {message.broker_id} was told {response.broker_epoch}, which is "
                f"{oracles.lives.get(response.broker_epoch)}",
            )

    def _producer_ids(self, _attempt: Attempt, code: ErrorCode, response: Any) -> None:
        if code is not ErrorCode.none:
            return
        start, length = response.producer_id_start, response.producer_id_len
        if length < 1 or start % length or start in self._blocks:
            self._oracles.violate("a producer id is given once", f"{start}, {length} ids")
        self._blocks.add(start)

    def _alter_partition(self, attempt: Attempt, code: ErrorCode, response: Any) -> None:
        message, oracles = attempt.message, self._oracles
        if code is not ErrorCode.none:
            return
        life = oracles.lives.get(message.broker_epoch)
        if life is None or life[0] != message.broker_id:
            oracles.violate("asked in its current life", f"{message} was accepted")
        entry = attempt.decided and oracles.committed_ids.get(attempt.decided[0].proposal.id)
        if entry:
            self._was_current(oracles.image_at(entry.base), message)
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code is ErrorCode.none:
                    self._partition_state(from_wire_uuid(topic.topic_id), each)

    def _was_current(self, before: ClusterImage | None, message: Any) -> None:
        """What changed something was asked in the life and the epochs that were current then."""
        assert before is not None
        broker = before.brokers.get(message.broker_id)
        if broker is None or broker.broker_epoch != message.broker_epoch:
            self._oracles.violate("asked in its current life", f"{broker}, {message}")
        for topic in message.topics:
            for each in topic.partitions:
                topic_id = TopicId(from_wire_uuid(topic.topic_id))
                partition = before.partition(topic_id, each.partition_index)
                asked = (each.leader_epoch, each.partition_epoch)
                if partition is None or asked != (
                    partition.leader_epoch,
                    partition.partition_epoch,
                ):
                    self._oracles.violate("asked in current epochs", f"{partition}, {message}")

    def _partition_state(self, topic_id: Any, told: Any) -> None:
        key = (TopicId(topic_id), told.partition_index, told.partition_epoch)
        found = self._oracles.partition_states.get(key)
        if (
            found is None
            or (found.leader, found.leader_epoch) != (told.leader_id, told.leader_epoch)
            or found.isr != tuple(told.isr)
            or found.leader_recovery_state != told.leader_recovery_state
        ):
            self._oracles.violate("AlterPartition agrees with the log", f"{told}, is {found}")
