"""`kraftpy elect`: give partitions their preferred leader back, or any at all."""

import click
from confluent_kafka import ElectionType, KafkaError, TopicPartition

from kraftpy.cli.client import (
    Connection,
    Refused,
    client_options,
    json_option,
    print_json,
    print_table,
)
from kraftpy.cli.topics import metadata
from kraftpy.errors import ConfigError


@click.command()
@click.argument("kind", type=click.Choice(["preferred", "unclean"]))
@click.option("--topic", metavar="TOPIC", help="All its partitions, or that of --partition.")
@click.option("--partition", type=click.IntRange(0))
@click.option("--all", "everything", is_flag=True, help="All partitions of all topics.")
@json_option
@client_options
def elect(
    connection: Connection,
    kind: str,
    topic: str | None,
    partition: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Elect leaders.

    `preferred` moves leaderships to the first replica of each partition. `unclean` gives partitions
    without any in-sync replica a leader that may lack acknowledged records: they are lost then.
    """
    if everything == (topic is not None) or (partition is not None and topic is None):
        raise ConfigError("give either --all, or --topic and perhaps --partition")
    admin = connection.admin()
    asked = None
    if topic is not None:
        found = metadata(connection, admin, topic).topics[topic].partitions
        if partition is not None and partition not in found:
            raise Refused(f"there is no {topic}-{partition}")
        indexes = found if partition is None else [partition]
        asked = [TopicPartition(topic, index) for index in indexes]
    election = ElectionType.PREFERRED if kind == "preferred" else ElectionType.UNCLEAN
    results = connection.result(admin.elect_leaders(election, asked))
    rows = [
        {"topic": each.topic, "partition": each.partition, "outcome": _outcome(error)}
        for each, error in sorted(
            results.items(), key=lambda item: (item[0].topic, item[0].partition)
        )
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(("topic", "partition", "outcome"), [list(row.values()) for row in rows])
    failed = [row for row in rows if row["outcome"] not in ("elected", "not needed")]
    if failed:
        raise Refused(f"{len(failed)} of {len(rows)} partitions have no new leader")


def _outcome(error: KafkaError | None) -> str:
    if error is None or error.code() == KafkaError.NO_ERROR:
        return "elected"
    return "not needed" if error.code() == KafkaError.ELECTION_NOT_NEEDED else str(error.str())
