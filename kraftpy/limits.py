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
