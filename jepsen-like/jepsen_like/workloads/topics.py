"""Topics that a workload needs before it begins."""

from jepsen_like.client import requests
from jepsen_like.client.errors import NONE, TOPIC_ALREADY_EXISTS
from jepsen_like.client.kafka import CREATE_TOPICS, Definite, KafkaClient


async def create_topic(
    client: KafkaClient,
    name: str,
    partitions: int,
    replicas: int,
    configs: dict[str, str] | None = None,
) -> None:
    """Have it created; that it is there already is fine. Definite if it was refused."""
    body = requests.create_topic(name, partitions, replicas, configs or {}, 10_000)
    _, data = await client.ask_any(CREATE_TOPICS, body)
    code = requests.read_create_topic(data)
    if code not in (NONE, TOPIC_ALREADY_EXISTS):
        raise Definite(f"topic {name}: error {code}")
