"""Throws bytes at every request type in one process: `python -m tests.unit.wire.fuzz SEED COUNT`.

Meant to be run as a process of its own, with little memory, so that a reader that allocates what
a length promises, loops without end or aborts is seen from outside. Prints what it did.
"""

import json
import random
import resource
import struct
import sys

from kio.static.constants import EntityType

from kraftpy.errors import WireError
from kraftpy.quorum.server import READ_APIS
from kraftpy.wire.apis import read_request, request_type
from kraftpy.wire.codec import decode, encode
from kraftpy.wire.headers import API_VERSIONS
from tests.unit.wire.messages import random_message, top_level_types

MEMORY_BYTES = 600 * 1024 * 1024
LENGTHS = (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A message with a few bytes changed, lengths above all."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[at : at + 1] = rng.randbytes(1)
            case 1:
                out[at : at + rng.randrange(6)] = rng.choice(LENGTHS)
            case 2:
                del out[at : at + rng.randrange(1, 9)]
            case 3:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                del out[at:]
    return bytes(out)


def served_types() -> list[tuple[int, int, type]]:
    ranges = {**{key: api.versions for key, api in READ_APIS.items()}, API_VERSIONS: (0, 4)}
    return [
        (key, version, request_type(key, version))
        for key, (low, high) in sorted(ranges.items())
        for version in range(low, high + 1)
    ]


def fuzz(seed: int, count: int) -> dict[str, int]:
    rng = random.Random(seed)
    table = {key: api.versions for key, api in READ_APIS.items()}
    served = served_types()
    others = [(-1, -1, t) for t in top_level_types(EntityType.request, EntityType.response)]
    good = {t: examples(t, rng) for _, _, t in (*served, *others)}
    counts = {"read": 0, "refused": 0, "types": len(good)}
    for number in range(count):
        # Half of the effort for what a controller serves, half for all that kio knows.
        key, version, entity = rng.choice(served if number % 2 else others)
        if rng.random() < 0.1:
            data = rng.randbytes(rng.randrange(200))
        else:
            data = mutated(rng.choice(good[entity]), rng)
        try:
            if key in table and rng.random() < 0.5:
                read_request(table, struct.pack(">hhi", key, version, number) + b"\0\1x\0" + data)
            else:
                # What was read is a message: it can be written, and is then read as the same.
                written = encode(decode(entity, data))
                assert encode(decode(entity, bytes(written))) == written
            counts["read"] += 1
        except WireError:
            counts["refused"] += 1
    return counts


def examples(entity: type, rng: random.Random) -> list[bytes]:
    return [bytes(encode(random_message(entity, rng, length_max=n))) for n in (0, 1, 1, 2, 3)]


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
