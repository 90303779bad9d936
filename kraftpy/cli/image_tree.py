"""A cluster image as a tree for people. Large branches say how much they leave out."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from rich.text import Text
from rich.tree import Tree

from kraftpy.metadata_log.image import ClusterImage, Partition
from kraftpy.types import uuid_text

_TOPICS_SHOWN: Final = 200
_PARTITIONS_SHOWN: Final = 64
_OTHERS_SHOWN: Final = 200
_RESOURCE_NAMES: Final = {2: "topic", 4: "broker"}


def image_tree(image: ClusterImage) -> Tree:
    """The whole image; `--json` has what is left out here."""
    tree = Tree(Text(f"cluster at offset {image.end_offset}, epoch {image.epoch}"))
    if image.transaction is not None:
        begun = image.transaction.begin_offset
        tree.add(Text(f"metadata transaction open since offset {begun}: not in what follows"))
    _add(tree, "features", (f"{name} = {level}" for name, level in sorted(image.features.items())))
    _add(tree, "controllers", (f"{each}" for each in sorted(image.controllers)))
    _add(tree, "brokers", _brokers(image))
    _add_topics(tree, image)
    _add(tree, "configs", _configs(image))
    _add(tree, "quotas", _quotas(image))
    _add(tree, "ACLs", (_acl(image, acl_id) for acl_id in sorted(image.acls)))
    scram = (f"{user} mechanism {mechanism}" for user, mechanism in sorted(image.scram))
    _add(tree, "SCRAM credentials", scram)
    _add(tree, "delegation tokens", sorted(image.delegation_tokens))
    if image.next_producer_id:
        tree.add(Text(f"next producer id {image.next_producer_id}"))
    return tree


def _add(tree: Tree, title: str, lines: Iterable[str], shown: int = _OTHERS_SHOWN) -> None:
    """A branch with its lines, if there are any."""
    found = list(lines)
    if not found:
        return
    branch = tree.add(Text(f"{title} ({len(found)})"))
    for line in found[:shown]:
        branch.add(Text(line))
    if len(found) > shown:
        branch.add(Text(f"... and {len(found) - shown} more"))


def _brokers(image: ClusterImage) -> Iterable[str]:
    for broker_id, broker in sorted(image.brokers.items()):
        where = " ".join(f"{each.name}://{each.host}:{each.port}" for each in broker.end_points)
        state = "fenced" if broker.fenced else "active"
        if broker.in_controlled_shutdown:
            state = "shutting down"
        rack = f" rack {broker.rack}" if broker.rack else ""
        yield f"{broker_id} {state} epoch {broker.broker_epoch} {where}{rack}"


def _add_topics(tree: Tree, image: ClusterImage) -> None:
    if not image.topics:
        return
    branch = tree.add(Text(f"topics ({len(image.topics)})"))
    for name, topic_id in sorted(image.topic_ids.items())[:_TOPICS_SHOWN]:
        partitions = image.topics[topic_id].partitions
        lines = (f"{each} {_partition(partitions[each])}" for each in sorted(partitions))
        title = f"{name} {uuid_text(topic_id)}: partitions"
        _add(branch, title, lines, _PARTITIONS_SHOWN)
        if not partitions:
            branch.add(Text(f"{title} (0)"))
    if len(image.topics) > _TOPICS_SHOWN:
        branch.add(Text(f"... and {len(image.topics) - _TOPICS_SHOWN} more"))


def _partition(partition: Partition) -> str:
    words = [
        f"leader {partition.leader} epoch {partition.leader_epoch}",
        f"replicas {list(partition.replicas)} isr {list(partition.isr)}",
    ]
    for title, brokers in (
        ("adding", partition.adding_replicas),
        ("removing", partition.removing_replicas),
        ("elr", partition.elr),
        ("last known elr", partition.last_known_elr),
    ):
        if brokers:
            words.append(f"{title} {list(brokers)}")
    return " ".join(words)


def _configs(image: ClusterImage) -> Iterable[str]:
    for (kind, resource), configs in sorted(image.configs.items()):
        where = f"{_RESOURCE_NAMES.get(kind, f'resource type {kind}')} {resource or '(default)'}"
        for name, value in sorted(configs.items()):
            yield f"{where}: {name} = {value}"


def _quotas(image: ClusterImage) -> Iterable[str]:
    lines = []
    for key, quotas in image.quotas.items():
        who = " ".join(f"{e.entity_type} {e.entity_name or '(default)'}" for e in key)
        lines += [f"{who}: {name} = {value}" for name, value in quotas.items()]
    return sorted(lines)


def _acl(image: ClusterImage, acl_id: object) -> str:
    acl = image.acls[acl_id]  # type: ignore[index]
    return " ".join(f"{f.name}={getattr(acl, f.name)}" for f in fields(acl) if f.name != "id")
