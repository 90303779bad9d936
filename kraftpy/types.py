"""The identifiers that every layer speaks of.

They are NewTypes over plain ints and bytes: free at run time, checked by mypy.
A Uuid is its 16 bytes, since bytes hash and compare fast and msgpack carries them as they are;
people see Kafka's form, URL-safe base64 without padding.
"""

import base64
import binascii
import random
from typing import Final, NewType, TypeAlias
from uuid import UUID

BrokerId = NewType("BrokerId", int)
Epoch = NewType("Epoch", int)
Offset = NewType("Offset", int)
Uuid = NewType("Uuid", bytes)
TopicId = NewType("TopicId", Uuid)
# Chance is an argument: pure modules take it from here and never make their own.
Rng: TypeAlias = random.Random

NO_LEADER: Final = BrokerId(-1)
NO_EPOCH: Final = Epoch(-1)
ZERO_UUID: Final = Uuid(bytes(16))


def random_uuid(rng: random.Random) -> Uuid:
    """A version 4 UUID, never one whose text begins with a dash (it would read as a flag)."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        if not uuid_text(uuid).startswith("-"):
            return uuid


def uuid_text(uuid: bytes) -> str:
    """Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def parse_uuid(text: str) -> Uuid:
    """The UUID that `uuid_text` wrote; ValueError says what is wrong with any other text."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise ValueError(f"{text!r} is not a base64 UUID") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is {len(raw)} bytes long, a UUID has 16")
    return Uuid(raw)


def from_wire_uuid(uuid: UUID | None) -> Uuid:
    """The UUID of one of kio's messages, in which None stands for zero."""
    return ZERO_UUID if uuid is None else Uuid(uuid.bytes)


def to_wire_uuid(uuid: bytes) -> UUID | None:
    """The same for kio's messages."""
    return None if uuid == ZERO_UUID else UUID(bytes=uuid)
