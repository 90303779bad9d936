"""Orders of an operator under load: elections, reassignments, configs, topics that come and go."""

from jepsen_like.client import requests
from jepsen_like.client.errors import name_of
from jepsen_like.client.kafka import (
    ALTER_CONFIGS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    REASSIGN,
    Definite,
    Indefinite,
)
from jepsen_like.nemesis.base import Fault, NotNow, Situation, nothing
from jepsen_like.workloads.base import split_partition

_CHURN = "churn-"  # Not a name of any workload.
_DONE = (0, 84, 85)  # Done, or there was nothing to do.


def _partition(situation: Situation) -> tuple[str, int]:
    known = sorted(situation.seen.partitions)
    if not known:
        raise NotNow("no partition is known yet")
    return split_partition(situation.rng.choice(known))


class Admin:
    """One order after the other, as asked for by name."""

    def __init__(self, name: str, orders: tuple[str, ...]) -> None:
        self.name = name
        self._orders = orders
        self._count = 0

    async def begin(self, situation: Situation) -> Fault:
        order = situation.rng.choice(self._orders)
        try:
            code, details = await self._give(situation, order)
        except (Definite, Indefinite) as error:
            raise NotNow(f"{order}: {error}") from None
        if code not in _DONE:
            raise NotNow(f"{order}: {name_of(code)}")
        return Fault(self.name, {"targets": [], "order": order, **details}, nothing)

    async def _give(self, situation: Situation, order: str) -> tuple[int, dict[str, object]]:
        admin, rng = situation.admin, situation.rng
        self._count += 1
        topic, index = _partition(situation)
        match order:
            case "elect":
                body = requests.elect_leader(topic, index, 5000)
                _, data = await admin.ask_any(ELECT_LEADERS, body)
                return requests.read_elect_leader(data), {"partition": f"{topic}-{index}"}
            case "reassign":
                ids = [node.node_id for node in situation.cluster.brokers]
                replicas = rng.sample(ids, max(2, min(3, len(ids))))
                body = requests.reassign(topic, index, replicas, 5000)
                _, data = await admin.ask_any(REASSIGN, body, flexible=True)
                found: dict[str, object] = {"partition": f"{topic}-{index}", "replicas": replicas}
                return requests.read_reassign(data), found
            case "config":
                value = str(rng.randrange(10**9, 2 * 10**9))
                body = requests.set_topic_config(topic, "segment.bytes", value)
                _, data = await admin.ask_any(ALTER_CONFIGS, body)
                return requests.read_alter_configs(data), {"topic": topic}
            case "create":
                body = requests.create_topic(f"{_CHURN}{self._count}", 3, 3, {}, 5000)
                _, data = await admin.ask_any(CREATE_TOPICS, body)
                return requests.read_create_topic(data), {}
            case _:
                name = f"{_CHURN}{max(1, self._count - rng.randint(1, 5))}"
                _, data = await admin.ask_any(DELETE_TOPICS, requests.delete_topic(name, 5000))
                code = requests.read_delete_topic(data)
                return 0 if code == 3 else code, {}


ADMIN_FAULTS = (Admin("admin", ("elect", "config", "create", "delete", "reassign")),)
