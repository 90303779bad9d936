"""The two facts that Raft may never forget: the epoch, and whom this node voted for in it.

The file `quorum-state` is one line of JSON with Kafka's names, and one with its CRC. It is replaced
as a whole and synced before any message that depends on it leaves.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from kraftpy.errors import CorruptRecord, DiskFault
from kraftpy.storage.file_layer import FileLayer

FILE_NAME: Final = "quorum-state"
_VERSION: Final = 1


class Vote(NamedTuple):
    """An epoch and the voter that got this node's vote in it, if any."""

    epoch: int
    voted_id: int | None


class QuorumStateFile:
    """The file. A node without one has never voted."""

    def __init__(self, files: FileLayer, path: str) -> None:
        self._files = files
        self._path = path
        self.on_stored: Callable[[Vote], None] = lambda _vote: None  # For whoever takes notes.

    def load(self) -> Vote:
        """CorruptRecord if it is damaged: guessing an epoch could mean voting twice."""
        if not self._files.exists(self._path):
            return Vote(0, None)
        body, _, rest = self._files.read_whole(self._path).partition(b"\n")
        try:
            if rest != b"%08x\n" % crc32c(body):
                raise ValueError("the CRC does not match")
            state = json.loads(body)
            if state["data_version"] != _VERSION:
                raise ValueError(f"unknown version {state['data_version']}")
            epoch, voted_id = state["leaderEpoch"], state["votedId"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRecord(self._path, 0, 0, str(error)) from None
        return Vote(epoch, None if voted_id < 0 else voted_id)

    def store(self, vote: Vote) -> None:
        """Replace the file, durably."""
        state = {
            "leaderEpoch": vote.epoch,
            "votedId": -1 if vote.voted_id is None else vote.voted_id,
            "data_version": _VERSION,
        }
        body = json.dumps(state).encode()
        try:
            self._files.replace(self._path, body + b"\n%08x\n" % crc32c(body))
        except OSError as error:
            raise DiskFault(f"cannot write {self._path}: {error}") from error
        self.on_stored(vote)
