"""Which topics a consumer's metadata names (Kafka's ConsumerProtocolSubscription). Pure.

To the coordinator that metadata is opaque, but for one question: is a topic still read by the
group? Only then its offsets outlive their retention. What cannot be read says nothing.
"""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER: Final = "consumer"
_TOPICS_MAX: Final = 1_000_000


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Of all members together; None if one of them cannot be read."""
    found: set[str] = set()
    for each in metadata:
        topics = _topics(each)
        if topics is None:
            return None
        found.update(topics)
    return frozenset(found)


def _topics(metadata: bytes) -> list[str] | None:
    """They follow the version in every version."""
    try:
        count = struct.unpack_from(">i", metadata, 2)[0]
        if count > _TOPICS_MAX:
            return None
        topics, at = [], 6
        for _ in range(count):
            size = struct.unpack_from(">h", metadata, at)[0]
            end = at + 2 + max(size, 0)
            if end > len(metadata):
                return None
            topics.append(metadata[at + 2 : end].decode())
            at = end
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
