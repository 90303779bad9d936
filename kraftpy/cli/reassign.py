"""`kraftpy reassign`: move replicas to other brokers, watch them move, call it off.

librdkafka has no call for reassignments, so these requests go out through kraftpy's own client, to
any broker, which takes them to the controller. They are plaintext and unauthenticated.
"""

import asyncio
from datetime import timedelta
from typing import Any, Final, TextIO

import click
from kio.schema.errors import ErrorCode

from kraftpy.cli.client import (
    Connection,
    Refused,
    client_options,
    json_option,
    print_json,
    print_table,
)
from kraftpy.cli.progress import progress
from kraftpy.cli.reassign_plan import Name, Replicas, from_text, plan, to_text, topics_of
from kraftpy.cli.topics import metadata
from kraftpy.errors import ConfigError, KraftError
from kraftpy.network.client import WireClient
from kraftpy.network.places import parse_place

_ALTER: Final = 45
_LIST: Final = 46
_LOOK_EVERY_S: Final = 0.5

plan_file = click.argument("file", type=click.File("r"), metavar="PLAN")


@click.group()
def reassign() -> None:
    """Move replicas: plan, execute, verify, cancel."""


@reassign.command("plan")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Default: all.")
@click.option("--brokers", metavar="N,N,...", help="Who should have the replicas; default: all.")
@click.option("--replication-factor", "-r", type=click.IntRange(1), help="Default: as it is.")
@click.option("--output", "-o", type=click.File("w"), default="-", help="Default: the output.")
@client_options
def make_plan(
    connection: Connection,
    topics: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    output: TextIO,
) -> None:
    """Print where replicas should be: even, and moving as little as possible."""
    found = metadata(connection, connection.admin())
    for name in topics:
        if name not in found.topics:
            raise Refused(f"there is no topic {name}")
    current = {
        (name, index): tuple(partition.replicas)
        for name in topics or found.topics
        for index, partition in found.topics[name].partitions.items()
    }
    planned = plan(current, _brokers(brokers, sorted(found.brokers)), replication_factor)
    moved = sum(len(set(planned[name]) - set(current[name])) for name in planned)
    click.echo(to_text(planned), file=output)
    click.echo(f"{len(planned)} partitions, {moved} replicas move", err=True)


def _brokers(text: str | None, there: list[int]) -> list[int]:
    if text is None:
        return there
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--brokers: expected numbers with commas between them, not {text!r}")
    wanted = sorted({int(part) for part in parts})
    for each in wanted:
        if each not in there:
            raise Refused(
                f"there is no broker {each}: the cluster has {', '.join(map(str, there))}"
            )
    return wanted


@reassign.command()
@plan_file
@click.option("--wait", "-w", is_flag=True, help="Until all replicas have moved.")
@client_options
def execute(connection: Connection, file: TextIO, wait: bool) -> None:
    """Begin to move replicas as the PLAN says."""
    planned = from_text(file.read(), file.name)
    asyncio.run(_alter(connection, dict(planned)))
    click.echo(f"{len(planned)} partitions are being reassigned")
    if wait:
        asyncio.run(_wait(connection, planned))
        click.echo("done")


@reassign.command()
@plan_file
@json_option
@client_options
def verify(connection: Connection, file: TextIO, as_json: bool) -> None:
    """Show how far it is; exit code 1 if it is not done."""
    planned = from_text(file.read(), file.name)
    moving = asyncio.run(_moving(connection, planned))
    found = metadata(connection, connection.admin()).topics
    rows = []
    for (topic, index), replicas in sorted(planned.items()):
        partition = found[topic].partitions.get(index) if topic in found else None
        state = "missing"
        if partition is not None:
            state = "done" if set(partition.replicas) == set(replicas) else "not as planned"
        if (topic, index) in moving:
            state = "moving"
        rows.append({"topic": topic, "partition": index, "replicas": list(replicas), "is": state})
    if as_json:
        print_json(rows)
    else:
        columns = ("topic", "partition", "planned replicas", "is")
        print_table(columns, [list(row.values()) for row in rows])
    left = sum(row["is"] != "done" for row in rows)
    if left:
        raise Refused(f"{left} of {len(rows)} partitions are not where the plan wants them")


@reassign.command()
@plan_file
@client_options
def cancel(connection: Connection, file: TextIO) -> None:
    """Call off what is still moving; what has moved stays."""
    planned = from_text(file.read(), file.name)
    moving = asyncio.run(_moving(connection, planned))
    if moving:
        asyncio.run(_alter(connection, dict.fromkeys(moving)))
    click.echo(f"{len(moving)} reassignments cancelled")


# -- the wire -----------------------------------------------------------------------------------


async def _wait(connection: Connection, planned: dict[Name, Replicas]) -> None:
    with progress(len(planned), what="partitions") as advance:
        while moving := await _moving(connection, planned):
            advance(len(planned) - len(moving))
            await asyncio.sleep(_LOOK_EVERY_S)


async def _alter(connection: Connection, wanted: dict[Name, Replicas | None]) -> None:
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "replicas": wanted[topic, index]} for index in indexes
            ],
        }
        for topic, indexes in topics_of(list(wanted)).items()
    ]
    timeout = timedelta(seconds=connection.timeout_s)
    values = {"timeout": timeout, "topics": topics, "allow_replication_factor_change": True}
    answer = await _ask(connection, _ALTER, values)
    _check(answer)
    failed = [
        f"{topic.name}-{partition.partition_index}: "
        f"{partition.error_message or partition.error_code.name}"
        for topic in answer.responses
        for partition in topic.partitions
        if partition.error_code is not ErrorCode.none
    ]
    if failed:
        raise Refused("; ".join(failed))


async def _moving(connection: Connection, planned: dict[Name, Replicas]) -> set[Name]:
    topics = [
        {"name": topic, "partition_indexes": indexes}
        for topic, indexes in topics_of(list(planned)).items()
    ]
    timeout = timedelta(seconds=connection.timeout_s)
    answer = await _ask(connection, _LIST, {"timeout": timeout, "topics": topics})
    _check(answer)
    return {
        (topic.name, partition.partition_index)
        for topic in answer.topics
        for partition in topic.partitions
    }


def _check(answer: Any) -> None:
    if answer.error_code is not ErrorCode.none:
        raise Refused(answer.error_message or answer.error_code.name)


async def _ask(connection: Connection, api_key: int, values: dict[str, Any]) -> Any:
    """The answer of the first server that can be reached."""
    failed: list[str] = []
    for text in connection.servers.split(","):
        place = parse_place(text, "--bootstrap-server", "localhost:9092")
        try:
            client = await WireClient.connect(
                place.host, place.port, timeout_s=connection.timeout_s
            )
        except KraftError as error:
            failed.append(str(error))
            continue
        try:
            return await client.ask(api_key, values)
        finally:
            await client.close()
    raise Refused("; ".join(failed))
