"""Who asked for unclean elections, as evidence for the steps of the log.

Notes prove that nobody asked only where they are whole: for the epochs that a controller itself
noted to have led. Elsewhere, and where a request was for all partitions, there is no evidence, and
an unclean election is not blamed on anyone.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from kraftpy.audit.recorded.notes import NodeNotes
from kraftpy.audit.rules.rule import NO_EVIDENCE, Evidence


class NotedEvidence(Mapping[int, Evidence]):
    """By the base offset of a step. `starts`: (first offset, epoch) of each epoch, in order."""

    def __init__(self, nodes: Sequence[NodeNotes], starts: Sequence[tuple[int, int]]) -> None:
        self._starts = sorted(starts)
        self._offsets = [offset for offset, _ in self._starts]
        self._covered = {
            row.epoch for each in nodes for row in each.leaders if row.leader == each.node
        }
        self._requests = sorted(
            (request for each in nodes for request in each.requests), key=lambda each: each.offset
        )

    def __getitem__(self, offset: int) -> Evidence:
        at = bisect_right(self._offsets, offset) - 1
        if at < 0 or self._starts[at][1] not in self._covered:
            return NO_EVIDENCE
        asked = [each for each in self._requests if each.offset <= offset]
        if any(each.is_for_all for each in asked):
            return NO_EVIDENCE
        keys = frozenset(key for each in asked for key in each.partitions)
        return Evidence(unclean_elections=keys)

    def __iter__(self) -> Iterator[int]:
        """Where epochs begin: there is no end to the offsets that may be asked for."""
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)
