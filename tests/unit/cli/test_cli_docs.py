"""docs/cli.md: every command that it shows exists, with these options."""

import re
import shlex
from pathlib import Path

import click
import pytest

from kraftpy.cli.main import ENTRIES, cli

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
SHOWN = [
    re.split(r"\s{3,}", line)[0]
    for block in re.findall(r"^```\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("kraftpy ")
]


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """As click would, without running anything; files need not be there."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command, parent=parent, info_name=command.name)
        _, found, rest = command.resolve_command(context, words)
        assert found is not None
        parse(found, rest, context)
        return
    parser = command.make_parser(click.Context(command, parent=parent, info_name=command.name))
    parser.parse_args(list(words))


@pytest.mark.parametrize("line", SHOWN)
def test_a_shown_command_can_be_parsed(line: str) -> None:
    parse(cli, shlex.split(line)[1:])


def test_a_planted_mistake_is_seen() -> None:
    for line in ("topics creat orders", "topics list --jsn"):
        with pytest.raises(click.UsageError):
            parse(cli, line.split())


def test_every_client_command_is_shown() -> None:
    mine = {entry.name for entry in ENTRIES if entry.section == "Use"} - {"groups"}
    assert mine <= {line.split()[1] for line in SHOWN}
