"""One node of a tiny replicated register on stock pysyncobj: a program of its own, for tests only.

`python -m tests.jepsen.stock_raft.node PORT BIND_ADDRESS ADDRESS PARTNER PARTNER`

The register holds a list; the one command appends to it and is answered, once applied on the
leader, with the place where it stands. Clients speak JSON lines:

    {"do": "status"}                     {"leader": true, "term": 3, "length": 12}
    {"do": "append", "value": 7, "bytes": 8000}   {"offset": 12}, {"refused": why}, {"lost": why}
    {"do": "read", "from": 0}            {"values": [...]} as this node has applied them

Everything about Raft is pysyncobj's default. A node listens at one address and is known to its
partners by another, the proxy's. The bytes only make a command as large as a real one.
"""

import asyncio
import json
import os
import sys
from typing import Any

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated


class Register(SyncObj):  # type: ignore[misc]
    def __init__(self, bind_address: str, address: str, partners: list[str]) -> None:
        super().__init__(address, partners, SyncObjConf(bindAddress=bind_address))
        self.values: list[int] = []

    @replicated  # type: ignore[untyped-decorator]
    def append(self, value: int, load: bytes) -> int:
        del load  # It was carried; that is all it is for.
        self.values.append(value)
        return len(self.values) - 1


class Server:
    def __init__(self, register: Register) -> None:
        self._register = register
        self._loop = asyncio.get_running_loop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client; one question at a time."""
        try:
            while line := await reader.readline():
                answer = await self._answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        register = self._register
        if asked["do"] == "append":
            return await self._append(asked["value"], os.urandom(asked["bytes"]))
        if asked["do"] == "read":
            return {"values": register.values[asked["from"] :]}
        return {
            "leader": register._isLeader(),
            "term": register.raftCurrentTerm,
            "length": len(register.values),
        }

    async def _append(self, value: int, load: bytes) -> dict[str, Any]:
        if not self._register._isLeader():
            return {"refused": "NOT_LEADER"}
        done: asyncio.Future[dict[str, Any]] = self._loop.create_future()

        def settle(answer: dict[str, Any]) -> None:
            if not done.done():
                done.set_result(answer)

        def applied(offset: Any, error: int) -> None:
            """Called by pysyncobj's thread."""
            good = error == FAIL_REASON.SUCCESS
            answer = {"offset": offset} if good else {"lost": f"FAIL_REASON {error}"}
            self._loop.call_soon_threadsafe(settle, answer)

        self._register.append(value, load, callback=applied)
        return await done


async def main(port: int, bind_address: str, address: str, partners: list[str]) -> None:
    server = Server(Register(bind_address, address, partners))
    async with await asyncio.start_server(server.serve, "127.0.0.1", port) as listener:
        await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
