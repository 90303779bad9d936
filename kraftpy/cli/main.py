"""The `kraftpy` command: finds the subcommand, and turns every refusal into one line.

Subcommands are listed here by module and imported only when called, so `kraftpy --version` does
not wait for what it does not use. Exit codes: 0 done, 2 the user must change a flag, setting or
directory, 1 any other refusal, 130 interrupted.

A reader that stops reading (`kraftpy config list | head -1`) ends the command in silence, with 1:
click does that. Any other failure to write the output, such as a full disk, is one line.
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from kraftpy import __version__
from kraftpy.errors import ConfigError, KraftError
from kraftpy.lean_imports import lean_imports


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a subcommand lives, and the line of help that needs no import."""

    section: str
    name: str
    module: str
    help: str


ENTRIES: Final = (
    Entry("Run", "dev", "kraftpy.cli.dev", "Run a cluster on this machine until interrupted."),
    Entry(
        "Run", "quorum", "kraftpy.cli.quorum", "Run a controller, or ask a quorum for its status."
    ),
    Entry("Run", "broker", "kraftpy.cli.broker", "Run a broker that serves Kafka clients."),
    Entry("Run", "format", "kraftpy.cli.format", "Give a node's directories their identity."),
    Entry("Use", "topics", "kraftpy.cli.topics", "Create, list, describe, alter, delete topics."),
    Entry("Use", "produce", "kraftpy.cli.produce", "Send lines or JSON as messages."),
    Entry("Use", "consume", "kraftpy.cli.consume", "Read messages, in the form you want."),
    Entry("Use", "configs", "kraftpy.cli.configs", "Show and alter configs of topics, brokers."),
    Entry("Use", "groups", "kraftpy.cli.groups", "Show groups and their lag; reset, delete."),
    Entry("Use", "brokers", "kraftpy.cli.brokers", "Show the brokers of a cluster."),
    Entry("Use", "elect", "kraftpy.cli.elect", "Elect preferred leaders, or any at all."),
    Entry("Use", "reassign", "kraftpy.cli.reassign", "Move replicas to other brokers."),
    Entry("Use", "perf", "kraftpy.cli.perf", "Measure throughput and latency."),
    Entry("Inspect", "log", "kraftpy.cli.log", "Look inside a metadata log: dump, verify, show."),
    Entry("Inspect", "audit", "kraftpy.cli.audit", "Check recorded logs, name each broken rule."),
    Entry("Configure", "config", "kraftpy.cli.config", "Show the settings that exist."),
    Entry("Configure", "completion", "kraftpy.cli.completion", "Complete commands in a shell."),
)


class LazyGroup(click.Group):
    """A group whose commands are the entries above; the attribute has the command's name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in ENTRIES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for entry in ENTRIES:
            if entry.name == cmd_name:
                with lean_imports():
                    module = importlib.import_module(entry.module)
                # A command whose name is a word of Python's has an underscore behind it.
                command = getattr(module, entry.name, None) or getattr(module, f"{entry.name}_")
                assert isinstance(command, click.Command)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(entry.section for entry in ENTRIES):
            with formatter.section(section):
                rows = [(entry.name, entry.help) for entry in ENTRIES if entry.section == section]
                formatter.write_dl(rows, col_max=10)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kraftpy", message="%(prog)s %(version)s")
def cli() -> None:
    """A Kafka-compatible cluster whose metadata lives in a Raft-replicated log."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code."""
    try:
        result = cli.main(args=list(arguments), prog_name="kraftpy", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.message)
        return 0
    except click.ClickException as error:
        return _refuse(error.format_message(), error.exit_code)
    except ConfigError as error:
        return _refuse(str(error), 2)
    except KraftError as error:
        return _refuse(str(error), 1)
    except OSError as error:
        # Commands give a typed error for their own files; what is left is mostly the output.
        place = error.filename or "cannot write the output"
        return _refuse(f"{place}: {error.strerror or error}", 1)
    except (click.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0


def _refuse(message: str, code: int) -> int:
    click.echo(f"kraftpy: {' '.join(message.split())}", err=True)
    return code


def main() -> None:
    """The entry point of the installed script."""
    sys.exit(run(sys.argv[1:]))
