"""What lies beside the metadata logs: notes that nodes took, and partitions of data."""

from kraftpy.audit.recorded.evidence import NotedEvidence
from kraftpy.audit.recorded.notes import NodeNotes, Recorded, check_notes, read_node_notes
from kraftpy.audit.recorded.places import Place, find_places

__all__ = [
    "NodeNotes",
    "NotedEvidence",
    "Place",
    "Recorded",
    "check_notes",
    "find_places",
    "read_node_notes",
]
