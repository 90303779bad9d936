"""What the client sends is Kafka's, what it reads is checked, and each outcome is the right one."""

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable

import pytest
from jepsen_like.client import requests
from jepsen_like.client.codec import BadAnswer, Reader, Writer
from jepsen_like.client.connection import Connection
from jepsen_like.client.errors import NAMES, Unanswered, Unsent, is_definite
from jepsen_like.client.kafka import Definite, Indefinite, KafkaClient
from jepsen_like.client.records import one_record, read_batches

WAIT_S = 30.0


def test_a_batch_is_read_as_it_was_written() -> None:
    (batch,) = read_batches(one_record(b"42", 1000, producer_id=7, producer_epoch=0, sequence=3))
    assert batch.records == [(0, b"42")]
    assert batch.last_offset == 0


def test_a_batch_that_was_cut_off_is_left_out_and_a_damaged_one_is_refused() -> None:
    batch = one_record(b"42", 1000)
    assert len(read_batches(batch + batch[:-1])) == 1
    damaged = bytearray(batch)
    damaged[-2] ^= 1
    with pytest.raises(BadAnswer, match="checksum"):
        read_batches(bytes(damaged))


def test_an_answer_that_ends_too_early_is_refused() -> None:
    whole = Writer().string("abc").pack("i", 5).done()
    reader = Reader(whole[:-1])
    assert reader.text() == "abc"
    with pytest.raises(BadAnswer):
        reader.i32()
    with pytest.raises(BadAnswer):
        Reader(Writer().pack("i", 1_000_000).done()).array(Reader.i32)


def test_only_what_was_refused_before_it_was_written_is_definite() -> None:
    names = {name for code, name in NAMES.items() if is_definite(code)}
    assert {"NOT_ENOUGH_REPLICAS", "NOT_CONTROLLER", "UNKNOWN_TOPIC_OR_PARTITION"} <= names
    open_ones = {"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR"}
    open_ones |= {"UNKNOWN_SERVER_ERROR", "NOT_LEADER_OR_FOLLOWER", "NETWORK_EXCEPTION"}
    open_ones |= {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"}
    assert not open_ones & names


Answer = Callable[[int, bytes], bytes | None]


class FakeBroker:
    """One node that leads t-0; what it answers to a Produce the test decides."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.port = 0
        self.asked: list[int] = []
        self._tasks: list[asyncio.Task[None] | None] = []

    async def __aenter__(self) -> "FakeBroker":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*(task for task in self._tasks if task is not None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.current_task())
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
                api_key, _, number = struct.unpack_from(">hhi", frame)
                self.asked.append(api_key)
                body = self._metadata() if api_key == 3 else self._answer(api_key, frame)
                if body is None:
                    break
                writer.write(struct.pack(">ii", len(body) + 4, number) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    def _metadata(self) -> bytes:
        writer = Writer().pack("i", 0).pack("ii", 1, 101).string("127.0.0.1").pack("i", self.port)
        writer.string(None).string("cluster").pack("i", 1).pack("i", 1).pack("h", 0).string("t")
        writer.boolean(False).pack("i", 1).pack("hiii", 0, 0, 101, 4)
        for ids in ((101,), (101,), ()):
            writer.array(ids, lambda w, each: w.pack("i", each))
        return writer.done()


def produced(code: int, offset: int) -> bytes:
    writer = Writer().pack("i", 1).string("t").pack("i", 1).pack("ihqqq", 0, code, offset, -1, 0)
    return writer.pack("i", 0).done()


def run(answer: Answer, story: Callable[[KafkaClient, FakeBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_S), FakeBroker(answer) as broker:
            client = KafkaClient([("127.0.0.1", broker.port)], {}, random.Random(1))
            try:
                await story(client, broker)
            finally:
                client.close()
        await rounds_of_the_loop()

    asyncio.run(main())


async def rounds_of_the_loop() -> None:
    """A transport that was aborted closes its socket in the loop's next round."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_record_is_sent_to_its_leader() -> None:
    async def story(client: KafkaClient, _broker: FakeBroker) -> None:
        sent = await client.send("t", 0, b"1", idempotent=False)
        assert (sent.offset, sent.leader_epoch, sent.node_id) == (17, 4, 101)

    run(lambda _api, _frame: produced(0, 17), story)


@pytest.mark.parametrize(
    ("code", "expected"), [(19, Definite), (20, Indefinite), (6, Indefinite), (7, Indefinite)]
)
def test_an_error_says_whether_it_may_have_happened(code: int, expected: type[Exception]) -> None:
    async def story(client: KafkaClient, _broker: FakeBroker) -> None:
        with pytest.raises(expected):
            await client.send("t", 0, b"1", idempotent=False)

    run(lambda _api, _frame: produced(code, -1), story)


def test_a_connection_that_ends_after_the_request_leaves_it_open() -> None:
    async def story(client: KafkaClient, _broker: FakeBroker) -> None:
        with pytest.raises(Indefinite):
            await client.send("t", 0, b"1", idempotent=False)

    run(lambda _api, _frame: None, story)


def test_one_open_attempt_makes_the_whole_operation_open() -> None:
    """A definite refusal of the second attempt says nothing about the first."""
    codes = iter([7, 19, 19])

    def answer(api: int, _frame: bytes) -> bytes:
        if api == 22:
            return Writer().pack("ihqh", 0, 0, 5, 0).done()
        return produced(next(codes, 19), -1)

    async def story(client: KafkaClient, _broker: FakeBroker) -> None:
        with pytest.raises(Indefinite):
            await client.send("t", 0, b"1", idempotent=True, retry_s=0.3)

    run(answer, story)


def test_an_attempt_is_repeated_under_the_same_sequence_until_it_is_acknowledged() -> None:
    codes = iter([7, 0])
    frames: list[bytes] = []

    def answer(api: int, frame: bytes) -> bytes:
        if api == 22:
            return Writer().pack("ihqh", 0, 0, 5, 0).done()
        frames.append(frame[-60:])
        return produced(next(codes), 3)

    async def story(client: KafkaClient, _broker: FakeBroker) -> None:
        assert (await client.send("t", 0, b"1", idempotent=True, retry_s=20)).offset == 3
        assert frames[0] == frames[1]

    run(answer, story)


def test_nobody_there_is_definite_and_silence_is_not() -> None:
    async def main() -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.transport.abort()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        silent = Connection("127.0.0.1", port)
        with pytest.raises(Unanswered):
            await silent.ask(3, 7, requests.metadata(None), 0.1)
        silent.close()
        server.close()
        await server.wait_closed()
        with pytest.raises(Unsent):
            await Connection("127.0.0.1", port).ask(3, 7, requests.metadata(None), 1.0)
        await rounds_of_the_loop()

    asyncio.run(main())


def test_a_record_without_a_sequence_is_sent_again_too() -> None:
    codes = iter([7, 0])
    frames: list[bytes] = []

    def answer(_api: int, frame: bytes) -> bytes:
        frames.append(frame)
        return produced(next(codes), 3)

    async def story(client: KafkaClient, broker: FakeBroker) -> None:
        assert (await client.send("t", 0, b"1", idempotent=False, retry_s=20)).offset == 3
        assert len(frames) == 2
        assert 22 not in broker.asked  # It has no producer id.

    run(answer, story)


def test_answers_are_taken_apart_wherever_the_network_cuts_them() -> None:
    async def main() -> None:
        body = b"x" * 50

        async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(2):
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                _, _, number = struct.unpack_from(">hhi", await reader.readexactly(length))
                for byte in struct.pack(">ii", len(body) + 4, number) + body:
                    writer.write(bytes([byte]))
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(dribble, "127.0.0.1", 0)
        connection = Connection("127.0.0.1", server.sockets[0].getsockname()[1])
        assert await connection.ask(3, 7, b"", WAIT_S) == body
        assert await connection.ask(3, 7, b"", WAIT_S) == body
        connection.close()
        server.close()
        await server.wait_closed()
        await rounds_of_the_loop()

    asyncio.run(main())


@pytest.mark.parametrize("value", [b"1", b"12345678", b"", b"x" * 70, b"x" * 300])
def test_a_record_of_any_length_is_read(value: bytes) -> None:
    """Short ones are read by a shorter way."""
    batch = one_record(value, 1000)
    assert read_batches(batch)[0].records == [(0, value)]
