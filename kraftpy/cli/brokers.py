"""`kraftpy brokers`: who serves, and how much each leads and holds.

A cluster names only the brokers that serve. One that does not, and has replicas, is known by them:
it is told too, without an address, since it is the one that people look for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from confluent_kafka import Node
from confluent_kafka.admin import PartitionMetadata

from kraftpy.cli.client import Connection, client_options, json_option, print_json, print_table
from kraftpy.cli.topics import metadata


@click.command()
@json_option
@client_options
def brokers(connection: Connection, as_json: bool) -> None:
    """Show the brokers of a cluster."""
    admin = connection.admin()
    described = admin.describe_cluster(request_timeout=connection.timeout_s).result()
    found = metadata(connection, admin)
    partitions = [p for topic in found.topics.values() for p in topic.partitions.values()]
    there = {int(node.id): node for node in described.nodes}
    named = {replica for each in partitions for replica in each.replicas}
    rows = [_row(number, there.get(number), partitions) for number in sorted(named | set(there))]
    if as_json:
        print_json({"cluster_id": described.cluster_id, "brokers": rows})
        return
    click.echo(f"cluster {described.cluster_id}")
    columns = ("broker", "address", "rack", "leads", "replicas", "out of sync")
    print_table(columns, [list(_shown(row).values()) for row in rows])


def _row(number: int, node: Node | None, partitions: Sequence[PartitionMetadata]) -> dict[str, Any]:
    """A broker that serves, or one that only has replicas."""
    held = [each for each in partitions if number in each.replicas]
    return {
        "broker": number,
        "address": None if node is None else f"{node.host}:{node.port}",
        "rack": None if node is None else node.rack,
        "leads": sum(each.leader == number for each in held),
        "replicas": len(held),
        "out_of_sync": sum(number not in each.isrs for each in held),
    }


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "address": row["address"] or "not there"}
