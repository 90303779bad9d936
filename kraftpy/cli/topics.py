"""`kraftpy topics`: create, list, describe, alter, delete."""

from typing import Any

import click
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kraftpy.cli.client import (
    Connection,
    Refused,
    assignments,
    client_options,
    json_option,
    print_json,
    print_table,
)
from kraftpy.errors import ConfigError


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--partitions", "-p", type=click.IntRange(1), help="Default: the cluster's.")
@click.option("--replication-factor", "-r", type=click.IntRange(1), help="Default: the cluster's.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is fine.")
@client_options
def create(
    connection: Connection,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics."""
    asked = [
        NewTopic(
            name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=assignments(configs, "--config"),
        )
        for name in names
    ]
    admin = connection.admin()
    if if_not_exists:
        there = metadata(connection, admin).topics
        asked = [each for each in asked if each.topic not in there]
    if asked:
        connection.results(admin.create_topics(asked), "created")


def metadata(connection: Connection, admin: AdminClient, topic: str | None = None) -> Any:
    """What the brokers say of the cluster; Refused if it lacks the topic.

    All topics are asked for: whoever asks for one by its name has it made.
    """
    with connection.asking():
        found = admin.list_topics(timeout=connection.timeout_s)
    if topic is not None:
        if topic not in found.topics:
            raise Refused(f"there is no topic {topic}")
        if (error := found.topics[topic].error) is not None:
            raise connection.refused(error)
    return found


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also those whose names begin with __.")
@json_option
@client_options
def list_(connection: Connection, internal: bool, as_json: bool) -> None:
    """List topics."""
    found = metadata(connection, connection.admin()).topics
    shown = [found[name] for name in sorted(found) if internal or not name.startswith("__")]
    rows = [_summary(topic) for topic in shown]
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("topic", "partitions", "replicas", "under-replicated", "without leader"),
            [list(row.values()) for row in rows],
        )


def _summary(topic: Any) -> dict[str, Any]:
    partitions = topic.partitions.values()
    return {
        "topic": topic.topic,
        "partitions": len(partitions),
        "replicas": max((len(p.replicas) for p in partitions), default=0),
        "under_replicated": sum(len(p.isrs) < len(p.replicas) for p in partitions),
        "without_leader": sum(p.leader < 0 for p in partitions),
    }


@topics.command()
@click.argument("names", metavar="[TOPIC]...", nargs=-1)
@click.option("--under-replicated", is_flag=True, help="Only partitions that lack replicas.")
@json_option
@client_options
def describe(
    connection: Connection, names: tuple[str, ...], under_replicated: bool, as_json: bool
) -> None:
    """Show leader, replicas and in-sync replicas of each partition."""
    admin = connection.admin()
    found = metadata(connection, admin).topics
    for name in names:
        if name not in found:
            raise Refused(f"there is no topic {name}")
    rows = [
        {
            "topic": name,
            "partition": index,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isrs),
        }
        for name in sorted(names or found)
        for index, partition in sorted(found[name].partitions.items())
        if not under_replicated or len(partition.isrs) < len(partition.replicas)
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("topic", "partition", "leader", "replicas", "in sync")
    print_table(columns, [list(row.values()) for row in rows])


@topics.command()
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", "-p", type=click.IntRange(1), help="As many as there should be.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE")
@click.option("--delete-config", "deleted", multiple=True, metavar="KEY", help="Back to default.")
@client_options
def alter(
    connection: Connection,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Add partitions; set and delete configs."""
    if partitions is None and not configs and not deleted:
        raise ConfigError("nothing to alter: give --partitions, --config or --delete-config")
    admin = connection.admin()
    if partitions is not None:
        connection.results(admin.create_partitions([NewPartitions(name, partitions)]))
        click.echo(f"{name} has {partitions} partitions")
    if configs or deleted:
        values = assignments(configs, "--config")
        alter_configs(connection, admin, ResourceType.TOPIC, name, values, deleted)
        click.echo(f"{name}: configs altered")


def alter_configs(
    connection: Connection,
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    values: dict[str, str],
    deleted: tuple[str, ...],
) -> None:
    """Set some configs of a resource and take others back."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    entries += [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in deleted
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    connection.results(admin.incremental_alter_configs([resource]))


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@client_options
def delete(connection: Connection, names: tuple[str, ...]) -> None:
    """Delete topics, with all that is in them."""
    connection.results(connection.admin().delete_topics(list(names)), "deleted")
