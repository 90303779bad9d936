"""Which records, batches or snapshots each rule looks at, to say how much a verdict rests on."""

from collections.abc import Mapping
from typing import Final

from kraftpy.audit.rules.book import RULES
from kraftpy.metadata_log import records as r

_PARTITION: Final = (r.PartitionRecord, r.PartitionChangeRecord, r.ClearElrRecord)
_BROKER: Final = (
    r.RegisterBrokerRecord,
    r.UnregisterBrokerRecord,
    r.FenceBrokerRecord,
    r.UnfenceBrokerRecord,
    r.BrokerRegistrationChangeRecord,
)
_TOPIC: Final = (r.TopicRecord, r.PartitionRecord, r.RemoveTopicRecord)
_TRANSACTION: Final = (
    r.BeginTransactionRecord,
    r.EndTransactionRecord,
    r.AbortTransactionRecord,
)

RECORDS: Final[dict[int, tuple[type[r.MetadataRecord], ...]]] = {
    **dict.fromkeys(range(1, 24), _PARTITION),
    7: (r.PartitionRecord,),
    **dict.fromkeys((12, 13, 16, 18, 25), (*_PARTITION, *_BROKER)),
    24: (*_PARTITION, r.RemoveTopicRecord),
    **dict.fromkeys(range(26, 34), _BROKER),
    30: (*_BROKER, *_PARTITION),
    33: (*_BROKER, *_PARTITION),
    34: (r.TopicRecord,),
    35: _TOPIC,
    36: (r.ConfigRecord, r.RemoveTopicRecord),
    37: _TOPIC,
    43: (r.ProducerIdsRecord,),
    44: (r.FeatureLevelRecord, *_BROKER, *_PARTITION),
    45: _TRANSACTION,
}
# Rules about logs: what is counted for them.
BATCHES: Final = "batches"
LEADERS: Final = "leaders"
VOTERS: Final = "voters"
LOGS: Final = "logs"
ENTITIES: Final = "entities"
OTHERS: Final[dict[int, str]] = {
    38: BATCHES,
    39: BATCHES,
    40: LEADERS,
    42: VOTERS,
    46: BATCHES,
    47: BATCHES,
    49: LEADERS,
    50: ENTITIES,
    51: LOGS,
}


def looked_at(types: Mapping[int, int], others: Mapping[str, int]) -> dict[str, int]:
    """How much each rule looked at, by rule; 0 where nothing of its kind was there."""
    found = {}
    for number, rule in sorted(RULES.items()):
        if number in RECORDS:
            found[rule.code] = sum(types.get(each.API_KEY, 0) for each in RECORDS[number])
        else:
            found[rule.code] = others.get(OTHERS.get(number, ""), 0)
    return found
