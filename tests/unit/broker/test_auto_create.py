"""A topic that is made by asking for it is in the first answer: no client has to ask twice."""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.network.client import WireClient
from kraftpy.testing import kraftpy_cluster
from kraftpy.wire.apis import METADATA


async def ask_once(address: str, topic: str) -> Any:
    host, port = address.split(":")
    client = await WireClient.connect(host, int(port), timeout_s=60)
    try:
        return await client.ask(
            METADATA,
            {
                "topics": [{"name": topic, "topic_id": None}],
                "allow_auto_topic_creation": True,
                "include_topic_authorized_operations": False,
            },
        )
    finally:
        await client.close()


def test_the_first_answer_has_the_new_topic() -> None:
    with kraftpy_cluster() as cluster:
        answer = asyncio.run(ask_once(cluster.address(101), "new"))
        assert answer.topics[0].error_code is ErrorCode.none
        assert [each.leader_id for each in answer.topics[0].partitions] == [101]


def test_a_name_that_no_topic_may_have_is_refused_as_before() -> None:
    with kraftpy_cluster() as cluster:
        answer = asyncio.run(ask_once(cluster.address(101), "not/a/topic"))
        assert answer.topics[0].error_code is ErrorCode.invalid_topic_exception
