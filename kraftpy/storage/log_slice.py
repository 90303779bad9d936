"""What a read of a log gives: whole batches, still in their file."""

from dataclasses import dataclass

from kraftpy.storage.file_layer import File


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Whole batches in a file: for sendfile, or as bytes."""

    file: File | None
    position: int
    count: int

    def read(self) -> bytes:
        return self.file.read(self.position, self.count) if self.file and self.count else b""
