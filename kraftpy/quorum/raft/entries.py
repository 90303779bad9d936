"""One Raft entry: a record batch, wrapped in what pysyncobj takes for a command. Pure.

The core looks at a command's first byte and at its length, no more. Every command of ours says
"no-op", so the core applies nothing: we learn from its commit index what is committed, and read
the batches ourselves. So an exception in whatever follows the log can never stall the core, and
nothing is ever unpickled.
"""

from collections.abc import Callable
from typing import Final

from kraftpy.errors import WireError
from kraftpy.storage.record_batch import BatchHeader, read_header, read_whole

NO_OP: Final = b"\x01"


class Command:
    """A batch, in memory or to be fetched from the log when someone wants its bytes."""

    __slots__ = ("_data", "_fetch", "_header", "_size")

    def __init__(
        self,
        data: bytes | None,
        size: int,
        fetch: Callable[[], bytes] | None = None,
        header: BatchHeader | None = None,
    ) -> None:
        self._data = data
        self._size = size
        self._fetch = fetch
        self._header = header

    @staticmethod
    def of(data: bytes) -> "Command":
        """A batch from outside; WireError unless it is exactly one whole batch."""
        header = read_whole(data, 0, len(data))
        if isinstance(header, str):
            raise WireError(f"an entry is not a batch: {header}")
        if header.size != len(data):
            raise WireError("an entry is not a batch: bytes behind the batch")
        return Command(data, len(data), header=header)

    def data(self) -> bytes:
        if self._data is not None:
            return self._data
        assert self._fetch is not None
        return self._fetch()

    def header(self) -> BatchHeader:
        if self._header is None:
            self._header = read_header(self.data())
        return self._header

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice) -> bytes:
        assert key == slice(None, 1), "the core looks at the first byte only"
        return NO_OP
