"""`kraftpy config`: what can be set, by which name, and what it means."""

import json

import click
from rich.console import Console
from rich.table import Table

from kraftpy.config import SETTINGS
from kraftpy.config_rows import Setting


@click.group()
def config() -> None:
    """Show the settings that exist."""


@config.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, for programs.")
def list_settings(as_json: bool) -> None:
    """Print every setting with its default, its bounds and its meaning.

    A value is taken from a flag (--set KEY=VALUE), else from the environment variable, else from
    the config file (--config FILE), else it is the default.
    """
    if as_json:
        click.echo(json.dumps([_as_object(setting) for setting in SETTINGS], indent=2))
        return
    table = Table(show_lines=True, title_justify="left")
    table.add_column("key and environment variable", no_wrap=True)
    table.add_column("default", overflow="fold")
    table.add_column("meaning", overflow="fold", min_width=30)
    for setting in SETTINGS:
        table.add_row(
            f"{setting.key}\n[dim]{setting.environment_name}[/dim]",
            "(unset)" if setting.default is None else str(setting.default),
            f"{setting.meaning}\n[dim]{setting.kind.name}: {setting.kind.allowed}[/dim]",
        )
    console = Console()
    if not console.is_terminal:
        console.width = 140  # A pipe has no width; the usual 80 columns would fold every cell.
    console.print(table)


def _as_object(setting: Setting) -> dict[str, object]:
    return {
        "key": setting.key,
        "type": setting.kind.name,
        "default": setting.default,
        "allowed": setting.kind.allowed,
        "environment": setting.environment_name,
        "meaning": setting.meaning,
    }
