"""Codecs: what was compressed comes back, within bounds, and in a form that all clients read."""

import struct

import cramjam
import pytest

from kraftpy.storage.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 1000, 3_000_000])
def test_what_was_compressed_comes_back(codec: int, size: int) -> None:
    data = bytearray(b"kraft" * (size // 5) + bytes(size % 5))
    assert decompress(codec, bytes(compress(codec, data))) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_little_that_becomes_too_much_is_refused(codec: int) -> None:
    bomb = bytes(compress(codec, bytes(1 << 20)))
    assert len(bomb) < 1 << 17
    assert decompress(codec, bomb, bytes_max=1 << 20) == bytes(1 << 20)
    with pytest.raises(ValueError, match="more"):
        decompress(codec, bomb, bytes_max=(1 << 20) - 1)


def test_the_blocks_of_framed_snappy_are_bounded_together() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1000)))
    framed = b"\x82SNAPPY\x00" + bytes(8) + (struct.pack(">i", len(block)) + block) * 3
    assert decompress(SNAPPY, framed) == bytes(3000)
    with pytest.raises(ValueError, match="more"):
        decompress(SNAPPY, framed, bytes_max=2999)


@pytest.mark.parametrize("codec", [*CODECS[1:], 5, 7])
def test_damaged_data_and_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(ValueError):
        decompress(codec, b"\xff" * 40)


def test_lz4_blocks_do_not_refer_to_each_other() -> None:
    """The Java client reads no others: bit 5 of the frame's flags."""
    assert compress(LZ4, bytes(300_000))[4] & 0x20
