"""Every bound in one place: what is not bounded here is not allowed to grow."""

from typing import Final

# Kafka's bound on one controller request and on one atomic batch (KAFKA-14996).
BATCH_RECORDS_MAX: Final = 10_000
# Kafka's bound on one Raft batch.
METADATA_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
# No batch in any log may be larger: a length field beyond it is damage, not data.
LOG_BATCH_BYTES_MAX: Final = 1024 * 1024 * 1024
# What a compressed batch may become where somebody must look inside.
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
# Snapshots of a partition's producers that are kept: one more than needed, should it be damaged.
PRODUCER_SNAPSHOTS_KEPT: Final = 2
# Records of a refused batch that an answer names.
RECORD_ERRORS_MAX: Final = 100
# What a key takes in memory while its log is compacted, measured: the entry, its key and offset.
OFFSET_MAP_ENTRY_BYTES: Final = 200
# writev takes at most IOV_MAX buffers at a time.
WRITEV_BUFFERS_MAX: Final = 1024
# Distinct replica and directory lists that the metadata codec shares between records.
INTERNED_LISTS_MAX: Final = 1 << 17
# What is longer is not a config file, whatever its name says.
CONFIG_FILE_CHARACTERS_MAX: Final = 1 << 20
# Decisions of the active controller that are not committed yet: how many, and their bytes. Beyond
# that, requests are refused at once; the bytes leave room for the largest request that is accepted.
CONTROLLER_IN_FLIGHT_MAX: Final = 2000
CONTROLLER_BYTES_IN_FLIGHT_MAX: Final = 4 * METADATA_BATCH_BYTES_MAX
# Attempts of a standby to register with one leader before it waits for the next one.
CONTROLLER_REGISTRATION_ATTEMPTS_MAX: Final = 10
# A request to a controller; none of Kafka's is larger, as a decision is bounded too.
CONTROLLER_REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
# Array elements in one request, all of them together: what they become in memory is a lot more.
MESSAGE_ELEMENTS_MAX: Final = 100_000
# In one answer: somebody asked for it, be it all offsets of a group or all partitions of a cluster.
RESPONSE_ELEMENTS_MAX: Final = 10_000_000
# Connections to a controller: all, from one address, and how long each may take for what.
CONTROLLER_CONNECTIONS_MAX: Final = 1000
CONTROLLER_CONNECTIONS_PER_ADDRESS_MAX: Final = 500
CONNECTION_IDLE_MS_MAX: Final = 10 * 60_000
CONNECTION_FIRST_BYTE_MS_MAX: Final = 10_000
REQUEST_ARRIVAL_MS_MAX: Final = 30_000
RESPONSE_DEPARTURE_MS_MAX: Final = 60_000
# Bytes of unfinished requests that a listener holds for all its clients together.
REQUEST_BYTES_BUFFERED_MAX: Final = 64 * 1024 * 1024
# A request to a broker, and all that arrive at a time: Kafka's default, and ours where it has none.
SOCKET_REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024
BROKER_REQUEST_BYTES_BUFFERED_MAX: Final = 512 * 1024 * 1024
# The receive buffer of a client, and of one that keeps it full; a larger request gets more.
BROKER_BUFFER_BYTES: Final = 64 * 1024
BROKER_BUFFER_BYTES_BUSY: Final = 1024 * 1024
# Requests of one client that wait for their answers, and bytes of answers that it does not take.
BROKER_REQUESTS_IN_FLIGHT_MAX: Final = 512
BROKER_UNSENT_BYTES_MAX: Final = 1024 * 1024
# Kinds of Produce requests that a connection remembers: about one for each partition.
PRODUCE_SHAPES_MAX: Final = 256
# How fast a request must arrive when its time is over; and the same while others wait for room.
REQUEST_ARRIVAL_BYTES_PER_MS_MIN: Final = 64
HURRIED_ARRIVAL_MS_MAX: Final = 5000
HURRIED_ARRIVAL_BYTES_PER_MS_MIN: Final = 1024
# Addresses whose misbehaviour was logged: each is named once.
COMPLAINTS_MAX: Final = 256
# One answer to a Fetch or FetchSnapshot of the metadata log, but for a larger first batch.
METADATA_FETCH_BYTES_MAX: Final = 1024 * 1024
METADATA_FETCH_WAIT_MS_MAX: Final = 30_000
# Observers of the metadata log that a leader remembers, and for how long after the last Fetch.
OBSERVERS_MAX: Final = 10_000
OBSERVER_FORGET_MS: Final = 5 * 60_000
# A frame between voters: append_entries stops at the first batch beyond its own bound.
PEER_FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
# The most that one append_entries carries; more than any batch, so that none is ever chunked.
APPEND_ENTRIES_BYTES_MAX: Final = METADATA_BATCH_BYTES_MAX + 1024 * 1024
# Batches that the leader keeps in memory for followers and for the state machine.
RECENT_BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
# A snapshot on its way to a follower: the size of a piece, and how many may be unanswered.
SNAPSHOT_CHUNK_BYTES: Final = 256 * 1024
SNAPSHOT_CHUNKS_IN_FLIGHT_MAX: Final = 8
# Before a peer has proven itself: its frames, and how many such connections are kept at a time.
PEER_HELLO_BYTES_MAX: Final = 512
PEER_HANDSHAKES_MAX: Final = 32
# Unsent bytes to one peer beyond which messages to it are dropped; Raft sends them again.
PEER_SEND_BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
# The most that is read from one peer before the others have their turn.
PEER_READ_BYTES: Final = 1024 * 1024
# Different complaints about peers that are remembered, so that each is logged once.
PEER_COMPLAINTS_MAX: Final = 256
# Controllers that a broker knows of: those of its settings and those that these have named.
CONTROLLER_PLACES_MAX: Final = 32
# Requests of a broker that wait for the active controller; beyond that they are refused at once.
CHANNEL_REQUESTS_MAX: Final = 1000
# Batches of an idempotent producer that a partition remembers; clients keep no more in flight.
PRODUCER_BATCHES_MAX: Final = 5
# A request that a broker passes on to the controller: its envelope must be one that is accepted.
FORWARDED_REQUEST_BYTES_MAX: Final = CONTROLLER_REQUEST_BYTES_MAX - 64 * 1024
# A thread that compacts works for this long at a time, and rests as long as it worked.
CLEANER_SLICE_MS: Final = 5
# While logs are opened at the start, the event of progress comes once for so many.
RECOVERY_PROGRESS_EVERY: Final = 100
# Topics of Metadata responses that a broker keeps encoded, for all listeners and versions together.
METADATA_ENCODED_BYTES_MAX: Final = 64 * 1024 * 1024
# What a node notes for audits: a file of this size, and the one before it.
AUDIT_NOTES_BYTES_MAX: Final = 1024 * 1024
# Partitions up to which a node keeps a digest of its image; a walk over more takes too long.
AUDIT_DIGEST_PARTITIONS_MAX: Final = 200_000
# Partitions of which a broker notes the high watermark in one go.
AUDIT_SAMPLES_MAX: Final = 20

# Replicas whose directories a broker tells in one request; Kafka's bound.
DIRECTORY_ASSIGNMENTS_MAX: Final = 2000
