"""`kraftpy configs`: the configs of topics and brokers, as they are now."""

from typing import Any, Final

import click
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from kraftpy.cli.client import (
    Connection,
    assignments,
    client_options,
    json_option,
    print_json,
    print_table,
)
from kraftpy.cli.topics import alter_configs
from kraftpy.errors import ConfigError

_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG.value: "file",
    ConfigSource.DEFAULT_CONFIG.value: "default",
}


def resource_options(command: Any) -> Any:
    """--topic or --broker."""
    command = click.option("--broker", metavar="N", help="A broker's number, or `all`.")(command)
    return click.option("--topic", metavar="TOPIC")(command)


@click.group()
def configs() -> None:
    """Show and alter configs of topics and brokers."""


@configs.command()
@resource_options
@click.option("--all", "with_defaults", is_flag=True, help="Also those that nobody has set.")
@json_option
@client_options
def describe(
    connection: Connection,
    topic: str | None,
    broker: str | None,
    with_defaults: bool,
    as_json: bool,
) -> None:
    """Show the configs of a topic or broker, and where each comes from."""
    kind, name = _resource(topic, broker)
    found = connection.results(connection.admin().describe_configs([ConfigResource(kind, name)]))
    entries = next(iter(found.values()))
    rows = [
        {
            "config": key,
            "value": entries[key].value,
            "source": _SOURCES.get(entries[key].source, str(entries[key].source)),
        }
        for key in sorted(entries)
        if with_defaults or not entries[key].is_default
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(("config", "value", "source"), [list(row.values()) for row in rows])


@configs.command()
@resource_options
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE")
@click.option("--delete", "deleted", multiple=True, metavar="KEY", help="Back to the default.")
@client_options
def alter(
    connection: Connection,
    topic: str | None,
    broker: str | None,
    values: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Set and delete configs of a topic or broker."""
    kind, name = _resource(topic, broker)
    if not values and not deleted:
        raise ConfigError("nothing to alter: give --set KEY=VALUE or --delete KEY")
    alter_configs(connection, connection.admin(), kind, name, assignments(values, "--set"), deleted)
    click.echo(f"{topic or 'broker ' + str(broker)}: configs altered")


def _resource(topic: str | None, broker: str | None) -> tuple[ResourceType, str]:
    if (topic is None) == (broker is None):
        raise ConfigError("give either --topic or --broker")
    if topic is not None:
        return ResourceType.TOPIC, topic
    assert broker is not None
    if broker != "all" and not broker.isdecimal():
        raise ConfigError(f"--broker: expected a number or all, not {broker!r}")
    return ResourceType.BROKER, "" if broker == "all" else broker
