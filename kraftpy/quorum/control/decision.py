"""What a decision is, what it may look at, and what a subject (brokers, topics, ...) exports. Pure.

A decision reads a Situation and changes nothing. Its records are appended as one batch and replayed
by the caller; its response is sent when they are committed. A request that is refused as a whole
raises Refused and has no records; one that is refused in parts says so in its response.

Responses are the values of an answer in any version, by kio's field names, as
`kraftpy.wire.codec.build` takes them. Messages are kio's classes, of any version that is served.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.errors import ApiError
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.types import Rng
from kraftpy.wire.apis import VersionRange

Values = Mapping[str, Any]


class Refused(ApiError):
    """The whole request is refused; nothing was written and nothing will be."""

    def __init__(self, error_code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.error_code = error_code
        self.code = error_code.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a decision may look at.

    The image is the speculative one: all that was decided, committed or not. The decision's batch
    will begin at `image.end_offset`.
    """

    image: ClusterImage
    index: PartitionIndex  # Of that image.
    heartbeats: Heartbeats
    settings: ControllerSettings
    now_ms: int  # Of the monotonic clock: only differences mean something.
    rng: Rng


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes true, and what is answered once it has.

    `own` marks a decision whose size the requester does not choose (a broker that led 30,000
    partitions is fenced): where it has more records than a batch may, it becomes several batches
    in one metadata transaction. Any other decision of that size is refused.
    """

    records: Sequence[MetadataRecord]
    response: Values
    own: bool = False


class ControlApi(NamedTuple):
    """One API of the controller listener that the active controller alone answers.

    `refuse` makes the answer that carries one error for all of the request. `current` answers are
    given only by a controller that still leads: even without records they wait for a proof of it.
    """

    versions: VersionRange
    decide: Callable[[Situation, Any], Decision]
    refuse: Callable[[Any, ErrorCode, str | None], Values]
    current: bool = True
