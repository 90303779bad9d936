"""Kafka's compression codecs, for the few places that must look inside a compressed batch.

The data path never does: it stores and sends what the producer compressed. Snappy comes in two
forms: plain blocks, and the framing of the Java library that most clients copy. LZ4 is written in
independent blocks, since the Java client refuses blocks that refer to earlier ones.

What data becomes is bounded: a few bytes of any codec can stand for gigabytes.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam

from kraftpy.limits import DECOMPRESSED_BYTES_MAX

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_FIRST_GUESS_BYTES_MIN: Final = 64 * 1024
_GUESSED_RATIO: Final = 8


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
            return _compress_lz4(data)
        case 4:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise ValueError(f"unknown compression {codec}")


def _compress_lz4(data: bytes | bytearray) -> bytes:
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def decompress(codec: int, data: bytes, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What `compress` was given; ValueError if the data is not in that codec, or too much."""
    try:
        match codec:
            case 0:
                return data
            case 1:
                return _decompress_into(cramjam.gzip.decompress_into, data, bytes_max)
            case 2:
                return _decompress_snappy(data, bytes_max)
            case 3:
                return _decompress_into(cramjam.lz4.decompress_into, data, bytes_max)
            case 4:
                return _decompress_into(cramjam.zstd.decompress_into, data, bytes_max)
            case _:
                raise ValueError(f"unknown compression {codec}")
    except cramjam.DecompressionError as error:
        raise ValueError(f"compression {codec}: {error}") from error


def _decompress_into(into: Callable[..., Any], data: bytes, bytes_max: int) -> bytes:
    """Into a buffer of a likely size, then into larger ones: the codecs do not say how much it is.

    A buffer that is too small and data that is damaged raise the same error.
    """
    size = min(bytes_max, max(_FIRST_GUESS_BYTES_MIN, len(data) * _GUESSED_RATIO))
    while True:
        buffer = bytearray(size)
        try:
            count = into(data, buffer)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
            if size == bytes_max:
                raise ValueError(f"more than {bytes_max} bytes when decompressed") from None
            size = min(bytes_max, size * _GUESSED_RATIO)
            continue
        return bytes(memoryview(buffer)[:count])


def _decompress_snappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(data, bytes_max)
    parts = []
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError("snappy framing is cut short")
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < 0 or at + size > len(data):
            raise ValueError("snappy framing is cut short")
        parts.append(_decompress_snappy_block(data[at : at + size], bytes_max))
        bytes_max -= len(parts[-1])
        at += size
    return b"".join(parts)


def _decompress_snappy_block(data: bytes, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > bytes_max:
        raise ValueError("more bytes than allowed when decompressed")
    return bytes(cramjam.snappy.decompress_raw(data))
