"""`kraftpy brokers`: who serves, and how much each leads and holds."""

import click

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
    rows = [
        {
            "broker": node.id,
            "address": f"{node.host}:{node.port}",
            "rack": node.rack,
            "leads": sum(each.leader == node.id for each in partitions),
            "replicas": sum(node.id in each.replicas for each in partitions),
            "out_of_sync": sum(
                node.id in each.replicas and node.id not in each.isrs for each in partitions
            ),
        }
        for node in sorted(described.nodes, key=lambda node: int(node.id))
    ]
    if as_json:
        print_json({"cluster_id": described.cluster_id, "brokers": rows})
        return
    click.echo(f"cluster {described.cluster_id}")
    columns = ("broker", "address", "rack", "leads", "replicas", "out of sync")
    print_table(columns, [list(row.values()) for row in rows])
