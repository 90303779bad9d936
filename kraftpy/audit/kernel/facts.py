"""What the records that are no partition's mean for partitions, told as events.

Follows brokers, topics, configs and features with the rule book's own View, so that compiled code
never has to know what a config value or a feature level means.
"""

from collections.abc import Callable
from typing import Any, Final

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import NONE
from kraftpy.audit.kernel.interning import BROKERS_MAX, Interned
from kraftpy.audit.rules.rule import Defaults
from kraftpy.audit.rules.view import CLUSTER_CONFIG, MIN_INSYNC_REPLICAS, Saved, View
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import EMPTY, Broker
from kraftpy.types import BrokerId

Event = tuple[int, int, int, int, int]

BROKER_RECORDS: Final = (
    r.RegisterBrokerRecord,
    r.UnregisterBrokerRecord,
    r.FenceBrokerRecord,
    r.UnfenceBrokerRecord,
    r.BrokerRegistrationChangeRecord,
)


class Facts:
    """Events for each record, in the order of the log."""

    def __init__(self, interned: Interned, defaults: Defaults) -> None:
        self.view = View(EMPTY, defaults)
        self.is_in_transaction = False
        self._interned = interned
        self._saved: Saved | None = None
        self._events: list[Event] = []
        self._index = 0

    def first_events(self) -> list[Event]:
        """What holds before the first record, whatever it is."""
        self._events, self._index = [], 0
        self._settings()
        return self._events

    def events(self, index: int, record: r.MetadataRecord) -> list[Event]:
        """What follows from a record that has this index."""
        self._events, self._index = [], index
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, record)
        return self._events

    def _add(self, kind: int, a: int = 0, b: int = 0, c: int = 0) -> None:
        self._events.append((self._index, kind, a, b, c))

    def _begin(self, _record: r.BeginTransactionRecord) -> None:
        if not self.is_in_transaction:
            self.is_in_transaction = True
            self._saved = self.view.save()

    def _end(self, _record: r.EndTransactionRecord) -> None:
        self.is_in_transaction = False

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        self.view.replay(record)
        self._add(w.TOPIC_GONE, self._interned.topic(record.topic_id))

    def _feature(self, record: r.FeatureLevelRecord) -> None:
        self.view.replay(record)
        self._settings()

    def _settings(self) -> None:
        self._add(w.ELR_ON, int(self.view.elr_enabled))
        self._add(w.SHRINK_BUMPS, int(self.view.shrink_bumps_leader_epoch))
        self._add(w.MIN_ISR_ALL, self._min_isr_of_all())
        self._add(w.SCAN)

    def _min_isr_of_all(self) -> int:
        return self.view.min_insync_replicas("")  # No topic has this name, so no setting of one.

    def _topic(self, record: r.TopicRecord) -> None:
        self.view.replay(record)
        topic = self._interned.topic(record.topic_id)
        self._add(w.TOPIC_LIVE, topic)
        self._add(w.MIN_ISR, topic, self._own_min_isr(record.name))

    def _own_min_isr(self, name: str) -> int:
        values = self.view.configs.get((r.TOPIC_RESOURCE, name))
        if values is None or MIN_INSYNC_REPLICAS not in values:
            return NONE
        return max(self.view.min_insync_replicas(name), 0)

    def _config(self, record: r.ConfigRecord) -> None:
        self.view.replay(record)
        if record.name != MIN_INSYNC_REPLICAS:
            return
        if (record.resource_type, record.resource_name) == CLUSTER_CONFIG:
            self._add(w.MIN_ISR_ALL, self._min_isr_of_all())
        topic_id = self.view.topic_ids.get(record.resource_name)
        if record.resource_type == r.TOPIC_RESOURCE and topic_id is not None:
            own = self._own_min_isr(record.resource_name)
            self._add(w.MIN_ISR, self._interned.topic(topic_id), own)

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        if not record.topic_name:
            self._add(w.CLEAR_ELR, NONE)
            return
        topic_id = self.view.topic_ids.get(record.topic_name)
        if topic_id is not None:
            self._add(w.CLEAR_ELR, self._interned.topic(topic_id))

    def _broker(self, record: Any) -> None:
        fences = isinstance(record, r.FenceBrokerRecord | r.UnfenceBrokerRecord)
        broker_id: BrokerId = record.id if fences else record.broker_id
        old = self.view.brokers.get(broker_id)
        self.view.replay(record)
        new = self.view.brokers.get(broker_id)
        if not 0 <= broker_id < BROKERS_MAX:
            return  # Whatever names it is for the rule book anyway.
        turn = _turn(record)
        if turn != NONE:
            self._add(w.TURN, broker_id, turn)
        self._tell(broker_id, new)
        is_same = old is not None and new is not None and old.incarnation_id == new.incarnation_id
        if is_same and old.in_controlled_shutdown and new.fenced:  # type: ignore[union-attr]
            self._add(w.LEADS_NOTHING, broker_id)

    def _tell(self, broker_id: BrokerId, broker: Broker | None) -> None:
        bits, directories = 0, 0
        if broker is not None:
            bits = w.REGISTERED | (w.ACTIVE if self.view.is_active(broker_id) else 0)
            directories = self._interned.directory_list(broker.log_dirs)
        self._add(w.BROKER, broker_id, bits, directories)

    def _abort(self, _record: r.AbortTransactionRecord) -> None:
        if self._saved is None or not self.is_in_transaction:
            return
        self.is_in_transaction = False
        changed = [layer.changed for layer in (self.view.brokers, self.view.topics)]
        brokers, topics = ({*each} for each in changed)
        self.view.restore(self._saved)
        self._add(w.ABORT)
        for broker_id in sorted(brokers):
            if 0 <= broker_id < BROKERS_MAX:
                self._tell(broker_id, self.view.brokers.get(broker_id))
        for topic_id in sorted(topics):
            is_gone = self.view.topics.get(topic_id) is None
            kind = w.TOPIC_GONE if is_gone else w.TOPIC_BACK
            self._add(kind, self._interned.topic(topic_id))
        self._settings()


_HANDLERS: Final[dict[type, Callable[[Facts, Any], None]]] = {
    r.BeginTransactionRecord: Facts._begin,
    r.EndTransactionRecord: Facts._end,
    r.AbortTransactionRecord: Facts._abort,
    r.TopicRecord: Facts._topic,
    r.RemoveTopicRecord: Facts._remove_topic,
    r.ConfigRecord: Facts._config,
    r.FeatureLevelRecord: Facts._feature,
    r.ClearElrRecord: Facts._clear_elr,
    **dict.fromkeys(BROKER_RECORDS, Facts._broker),
}


def _turn(record: r.MetadataRecord) -> int:
    """What a broker's record means for the order within its step (A30)."""
    match record:
        case r.UnfenceBrokerRecord() | r.BrokerRegistrationChangeRecord(fenced=r.UNFENCE):
            return w.BACK
        case r.FenceBrokerRecord() | r.BrokerRegistrationChangeRecord(fenced=r.FENCE):
            return w.GONE
        case r.RegisterBrokerRecord() | r.UnregisterBrokerRecord():
            return w.GONE
        case r.BrokerRegistrationChangeRecord(in_controlled_shutdown=r.SHUTTING_DOWN):
            return w.LEAVING
    return NONE
