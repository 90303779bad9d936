"""Kafka's compression codecs, for the few places that must look inside a compressed batch.

The data path never does: it stores and sends what the producer compressed. Snappy comes in two
forms: plain blocks, and the framing of the Java library that most clients copy.
"""

import struct
from typing import Final

import cramjam

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


def compress(codec: int, data: bytes | bytearray) -> bytes | bytearray:
    """The data in that codec; ValueError for one that Kafka does not have."""
    match codec:
        case 0:
            return data
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            return bytes(cramjam.lz4.compress(data))
        case 4:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise ValueError(f"unknown compression {codec}")


def decompress(codec: int, data: bytes) -> bytes:
    """What `compress` was given; ValueError if the data is not in that codec."""
    try:
        match codec:
            case 0:
                return data
            case 1:
                return bytes(cramjam.gzip.decompress(data))
            case 2:
                return _decompress_snappy(data)
            case 3:
                return bytes(cramjam.lz4.decompress(data))
            case 4:
                return bytes(cramjam.zstd.decompress(data))
            case _:
                raise ValueError(f"unknown compression {codec}")
    except cramjam.DecompressionError as error:
        raise ValueError(f"compression {codec}: {error}") from error


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    parts = []
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError("snappy framing is cut short")
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < 0 or at + size > len(data):
            raise ValueError("snappy framing is cut short")
        parts.append(bytes(cramjam.snappy.decompress_raw(data[at : at + size])))
        at += size
    return b"".join(parts)
