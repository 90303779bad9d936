"""The directories of the other voters.

A voter that comes back with an empty directory has forgotten its votes and its log, and could help
to elect a leader that lacks what was committed. It cannot know that itself. So each directory has
an id of its own (kraftpy/storage/identity.py), the voters tell each other theirs, and each
remembers the others' in `known-voters.json`: a voter with another directory than before is refused.
"""

import json
import os
from typing import Final

from kraftpy.errors import CorruptRecord
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import Uuid, parse_uuid, uuid_text

KNOWN_VOTERS_FILE: Final = "known-voters.json"


class KnownVoters:
    """The directory of each voter that this node has met."""

    def __init__(self, files: FileLayer, directory: str) -> None:
        self._files = files
        self._path = os.path.join(directory, KNOWN_VOTERS_FILE)
        self._known: dict[int, Uuid] = {}
        if files.exists(self._path):
            try:
                stored = json.loads(files.read_whole(self._path))
                self._known = {int(key): parse_uuid(text) for key, text in stored.items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise CorruptRecord(self._path, 0, 0, str(error)) from None

    def accepts(self, node_id: int, directory_id: Uuid) -> bool:
        """Whether a voter still has the directory it had; the first one seen is remembered."""
        known = self._known.get(node_id)
        if known is None:
            self._known[node_id] = directory_id
            stored = {str(key): uuid_text(self._known[key]) for key in sorted(self._known)}
            self._files.replace(self._path, json.dumps(stored).encode())
            return True
        return known == directory_id
