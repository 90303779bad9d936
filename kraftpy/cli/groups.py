"""`kraftpy groups`: list, describe with lag, reset offsets, delete."""

from collections.abc import Iterable, Sequence
from typing import Any

import click
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kraftpy.cli.client import (
    Connection,
    Refused,
    client_options,
    json_option,
    print_json,
    print_table,
)
from kraftpy.cli.coordinated import commit, committed, settled
from kraftpy.cli.group_offsets import Place, Target, chosen_target, parse_topics

_SPECS: Any = OffsetSpec
_LATEST: Any = _SPECS.latest()
_EARLIEST: Any = _SPECS.earliest()
_LAG_COLUMNS = (
    *("group", "topic", "partition", "committed", "end", "lag"),
    *("member", "client", "host"),
)


@click.group()
def groups() -> None:
    """Consumer groups: who is in them, what they have read, and how far they are behind."""


# -- list ---------------------------------------------------------------------------------------


@groups.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only these, such as Stable."
)
@click.option(
    "--type", "kinds", multiple=True, metavar="TYPE", help="Only these: classic or consumer."
)
@json_option
@client_options
def list_(
    connection: Connection, states: Sequence[str], kinds: Sequence[str], as_json: bool
) -> None:
    """List all groups of the cluster."""
    wanted = {
        "states": {_one_of(ConsumerGroupState, "--state", each) for each in states},
        "types": {_one_of(ConsumerGroupType, "--type", each) for each in kinds},
    }
    found = connection.admin().list_consumer_groups(**wanted).result(connection.timeout_s)
    for error in found.errors:
        raise connection.refused(error)
    rows = [
        {
            "group": each.group_id,
            "type": each.type.name.lower() if each.type is not None else "",
            "state": _title(each.state),
            "simple": each.is_simple_consumer_group,
        }
        for each in sorted(found.valid, key=lambda each: each.group_id)
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("group", "type", "state"), [(row["group"], row["type"], row["state"]) for row in rows]
    )


def _one_of(choices: Any, option: str, text: str) -> Any:
    """By Kafka's name for it, in upper case or not."""
    known = {_title(each): each for each in choices if each.name != "UNKNOWN"}
    for name, each in known.items():
        if name.lower() == text.lower():
            return each
    raise click.UsageError(f"{option}: {text!r} is none of {', '.join(known)}")


def _title(state: Any) -> str:
    """PREPARING_REBALANCING as PreparingRebalance: Kafka's word for it."""
    words = state.name.replace("REBALANCING", "REBALANCE").split("_")
    return "".join(word.capitalize() for word in words)


# -- describe -----------------------------------------------------------------------------------


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@json_option
@client_options
def describe(connection: Connection, names: Sequence[str], as_json: bool) -> None:
    """Show members, committed offsets and lag of groups."""
    admin = connection.admin()
    unique = list(dict.fromkeys(names))
    described = settled(connection, admin.describe_consumer_groups, unique)
    found = [_described(connection, admin, name, described[name]) for name in described]
    gone = [each["group"] for each in found if each["state"] == "Dead"]
    if gone:
        raise Refused(f"there is no group {', '.join(gone)}")
    if as_json:
        print_json(found)
        return
    for each in found:
        who = f"coordinator {each['coordinator']}" if each["coordinator"] is not None else ""
        count = len(each["members"])
        members = f"{count} member{'' if count == 1 else 's'}"
        click.echo(", ".join(filter(None, (each["group"], each["state"], members, who))))
    rows = [
        (each["group"], *(row[column] for column in _LAG_COLUMNS[1:]))
        for each in found
        for row in each["partitions"]
    ]
    if rows:
        print_table(_LAG_COLUMNS, rows)


def _described(
    connection: Connection, admin: AdminClient, name: str, described: Any
) -> dict[str, Any]:
    offsets = committed(connection, name, _all_places(connection, admin))
    owners = {
        (place.topic, place.partition): member
        for member in described.members
        for place in (member.assignment.topic_partitions if member.assignment else ())
    }
    places = sorted({*offsets, *owners})
    ends = _end_offsets(connection, admin, places)
    return {
        "group": name,
        "state": _title(described.state),
        "assignor": described.partition_assignor or "",
        "coordinator": described.coordinator.id if described.coordinator is not None else None,
        "members": [
            {
                "member": each.member_id,
                "instance": each.group_instance_id,
                "client": each.client_id,
                "host": each.host,
            }
            for each in described.members
        ],
        "partitions": [
            _lag_row(place, offsets.get(place), ends.get(place), owners.get(place))
            for place in places
        ],
    }


def _lag_row(place: Place, committed: int | None, end: int | None, owner: Any) -> dict[str, Any]:
    is_known = committed is not None and end is not None
    return {
        "topic": place[0],
        "partition": place[1],
        "committed": committed,
        "end": end,
        "lag": max((end or 0) - (committed or 0), 0) if is_known else None,
        "member": owner.member_id if owner is not None else None,
        "client": owner.client_id if owner is not None else None,
        "host": owner.host if owner is not None else None,
    }


def _all_places(connection: Connection, admin: AdminClient) -> list[Place]:
    """Every partition of the cluster: only an AdminClient could ask for all that a group has."""
    known = admin.list_topics(timeout=connection.timeout_s).topics
    return sorted((name, each) for name, topic in known.items() for each in topic.partitions)


def _end_offsets(
    connection: Connection, admin: AdminClient, places: Iterable[Place]
) -> dict[Place, int]:
    return offsets_at(connection, admin, places, _LATEST, missing_is_refused=False)


def offsets_at(
    connection: Connection,
    admin: AdminClient,
    places: Iterable[Place],
    where: Any,
    *,
    missing_is_refused: bool = True,
) -> dict[Place, int]:
    """Where partitions begin, end, or are at a time; one whose topic is gone may be left out."""
    known = admin.list_topics(timeout=connection.timeout_s).topics
    asked = {
        TopicPartition(topic, partition): where
        for topic, partition in places
        if topic in known and partition in known[topic].partitions
    }
    missing = [each for each in places if TopicPartition(*each) not in asked]
    if missing and missing_is_refused:
        raise Refused(f"there is no {missing[0][0]}-{missing[0][1]}")
    if not asked:
        return {}
    found = connection.results(admin.list_offsets(asked))
    return {(each.topic, each.partition): result.offset for each, result in found.items()}


# -- reset-offsets ------------------------------------------------------------------------------


@groups.command("reset-offsets")
@click.argument("name", metavar="GROUP")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    help="A topic, or some of its partitions; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N")
@click.option("--to-datetime", metavar="TIME", help="To the first record from then on, ISO 8601.")
@click.option("--shift-by", type=int, metavar="N", help="Forward, or back if negative.")
@click.option("--execute", is_flag=True, help="Do it; else it is only shown.")
@json_option
@client_options
def reset_offsets(
    connection: Connection,
    name: str,
    topics: Sequence[str],
    all_topics: bool,
    execute: bool,
    as_json: bool,
    **targets: Any,
) -> None:
    """Move the committed offsets of a group without members."""
    target = chosen_target(targets)
    if all_topics == bool(topics):
        raise click.UsageError("give either --topic or --all-topics")
    admin = connection.admin()
    places = _places(connection, admin, topics) if topics else _all_places(connection, admin)
    offsets = committed(connection, name, places)
    if all_topics:
        places = sorted(offsets)
    if not places:
        raise Refused(f"group {name} has no offsets")
    new = _new_offsets(connection, admin, places, offsets, target)
    if execute:
        _set_offsets(connection, admin, name, new)
    rows = [
        {
            "topic": place[0],
            "partition": place[1],
            "committed": offsets.get(place),
            "new": new[place],
        }
        for place in places
    ]
    if as_json:
        print_json({"group": name, "executed": execute, "partitions": rows})
        return
    print_table(("topic", "partition", "committed", "new"), [list(row.values()) for row in rows])
    if not execute:
        click.echo("Nothing was changed; --execute does it.")


def _places(connection: Connection, admin: AdminClient, texts: Sequence[str]) -> list[Place]:
    known = admin.list_topics(timeout=connection.timeout_s).topics
    places: set[Place] = set()
    for topic, partitions in parse_topics(texts).items():
        if topic not in known:
            raise Refused(f"there is no topic {topic}")
        places |= {(topic, each) for each in partitions or known[topic].partitions}
    return sorted(places)


def _new_offsets(
    connection: Connection,
    admin: AdminClient,
    places: Sequence[Place],
    committed: dict[Place, int],
    target: Target,
) -> dict[Place, int]:
    """Kept between the first record and the end of each partition."""
    starts = offsets_at(connection, admin, places, _EARLIEST)
    ends = offsets_at(connection, admin, places, _LATEST)
    found = {}
    if target.time_ms is not None:
        spec = OffsetSpec.for_timestamp(target.time_ms)
        found = offsets_at(connection, admin, places, spec)
    return {
        place: target.offset(starts[place], ends[place], committed.get(place), found.get(place))
        for place in places
    }


def _set_offsets(
    connection: Connection, admin: AdminClient, name: str, new: dict[Place, int]
) -> None:
    state = settled(connection, admin.describe_consumer_groups, [name])[name].state
    if state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        raise Refused(f"group {name} is {_title(state)}: stop its members first")
    commit(connection, name, new)


# -- delete -------------------------------------------------------------------------------------


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@json_option
@client_options
def delete(connection: Connection, names: Sequence[str], as_json: bool) -> None:
    """Delete groups without members, and their offsets."""
    unique = list(dict.fromkeys(names))
    settled(connection, connection.admin().delete_consumer_groups, unique)
    if as_json:
        print_json({"deleted": unique})
    else:
        click.echo(f"Deleted {', '.join(unique)}.")
