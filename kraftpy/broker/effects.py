"""What a replica's machine asks its surroundings to do: values, carried out in the order given.

The machine has already taken the step that an effect speaks of; whoever carries it out must do so
before the machine hears of anything else, or a later decision rests on a log that is not there.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from kraftpy.broker.isr import IsrProposal
from kraftpy.types import BrokerId


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """Everything before `offset` is committed. It is checkpointed now and then."""

    offset: int


@dataclass(frozen=True, slots=True)
class CompleteWaiting:
    """Produce and Fetch requests that wait for this partition must be looked at again."""


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Send AlterPartition. `again`: it was sent before and the answer was no answer: wait a bit."""

    proposal: IsrProposal
    again: bool = False


@dataclass(frozen=True, slots=True)
class AssignEpoch:
    """A leader epoch begins here, even if nothing is ever appended in it.

    Followers may hold records of epochs that this log has never seen; only an entry that is newer
    than all of theirs tells them where to cut.
    """

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log, and with it the epochs that begin at or after `offset`, even if no record goes.

    An epoch without records stays behind where a leader was replaced before it appended anything.
    `below_high_watermark` means that committed records go, as after an unclean election.
    """

    offset: int
    below_high_watermark: bool


@dataclass(frozen=True, slots=True)
class StartOver:
    """Remove the whole log and go on at `offset`: the leader has nothing that joins it."""

    offset: int
    below_high_watermark: bool


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """Records before `offset` are deleted on the leader, and so they are here."""

    offset: int


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Fetch from this leader, in this epoch only; the place is `Replica.fetch_position`."""

    leader: BrokerId
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """There is no leader to fetch from, or it is this broker."""


Effect: TypeAlias = (
    HighWatermarkMoved
    | CompleteWaiting
    | ProposeIsr
    | AssignEpoch
    | TruncateTo
    | StartOver
    | MoveLogStart
    | FetchFrom
    | StopFetching
)
Effects: TypeAlias = tuple[Effect, ...]

NO_EFFECTS: Final[Effects] = ()
COMPLETE_WAITING: Final = CompleteWaiting()
STOP_FETCHING: Final = StopFetching()
