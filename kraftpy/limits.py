"""Every bound in one place: what is not bounded here is not allowed to grow."""

from typing import Final

# Kafka's bound on one controller request and on one atomic batch (KAFKA-14996).
BATCH_RECORDS_MAX: Final = 10_000
# Kafka's bound on one Raft batch.
METADATA_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
# No batch in any log may be larger: a length field beyond it is damage, not data.
LOG_BATCH_BYTES_MAX: Final = 1024 * 1024 * 1024
# writev takes at most IOV_MAX buffers at a time.
WRITEV_BUFFERS_MAX: Final = 1024
# Distinct replica and directory lists that the metadata codec shares between records.
INTERNED_LISTS_MAX: Final = 1 << 17
# What is longer is not a config file, whatever its name says.
CONFIG_FILE_CHARACTERS_MAX: Final = 1 << 20
# A frame between voters: append_entries stops at the first batch beyond its own bound.
PEER_FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
# The most that one append_entries carries; more than any batch, so that none is ever chunked.
APPEND_ENTRIES_BYTES_MAX: Final = METADATA_BATCH_BYTES_MAX + 1024 * 1024
# Batches that the leader keeps in memory for followers and for the state machine.
RECENT_BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
# A snapshot on its way to a follower: the size of a piece, and how many may be unanswered.
SNAPSHOT_CHUNK_BYTES: Final = 256 * 1024
SNAPSHOT_CHUNKS_IN_FLIGHT_MAX: Final = 8
