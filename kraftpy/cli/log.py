"""`kraftpy log`: look inside the log of a node, running or not, without locks or writes.

DIR is a log's own directory, or a data directory: then its metadata log is meant. dump and verify
also read logs of data.
"""

import dataclasses
import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kraftpy import logs
from kraftpy.cli.image_tree import image_tree
from kraftpy.cli.log_lines import Filter, LinePrinter
from kraftpy.clock import SystemClock
from kraftpy.config import METADATA_PARTITION
from kraftpy.errors import ConfigError, KraftError
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.image_json import image_to_json
from kraftpy.metadata_log.reader import MetadataReader
from kraftpy.metadata_log.verification import Verdict, verify_log
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.reader import LogReader
from kraftpy.storage.recovery import segment_bases

_FOLLOW_SECONDS: Final = 0.2
_RULES_SHOWN_MAX: Final = 20
# A log that is only read gives none of these.
_OF_THE_OUTPUT: Final = frozenset((errno.EPIPE, errno.ENOSPC, errno.EDQUOT))

directory_argument = click.argument("directory", metavar="DIR")
json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@click.group()
def log() -> None:
    """Look inside a log: dump, verify, show, diff."""
    # What a library has to say (a damaged snapshot) goes to stderr, not between the records.
    logs.configure(log_format="text", level="warning", stream=sys.stderr, clock=SystemClock())


def find_log(directory: str) -> str:
    """The log directory that is meant; ConfigError if there is none."""
    inner = os.path.join(directory, METADATA_PARTITION)
    try:
        for candidate in (directory, inner):
            if os.path.isdir(candidate) and segment_bases(os.listdir(candidate)):
                return candidate
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from None
    if not os.path.exists(directory):
        raise ConfigError(f"{directory}: there is no such directory")
    raise ConfigError(f"{directory} holds no log: neither .log files nor {METADATA_PARTITION}")


@contextmanager
def reading(directory: str) -> Iterator[None]:
    """What the system refuses, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno in _OF_THE_OUTPUT:
            raise  # The command's frame tells of it, or says nothing to a reader that has gone.
        raise KraftError(f"cannot read {error.filename or directory}: {error.strerror}") from None


@log.command()
@directory_argument
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows, until interrupted.")
@click.option("--type", "type_name", metavar="T", help="Only this type, such as TopicRecord.")
@click.option("--topic", metavar="T", help="Only records about this topic.")
@click.option("--from", "from_offset", type=click.IntRange(0), metavar="N", help="First offset.")
@click.option("--to", "to_offset", type=click.IntRange(0), metavar="N", help="Before this offset.")
@json_option
def dump(
    directory: str,
    follow: bool,
    type_name: str | None,
    topic: str | None,
    from_offset: int | None,
    to_offset: int | None,
    as_json: bool,
) -> None:
    """Print the records of a log, one per line."""
    wanted = Filter.of(type_name, topic, from_offset or 0, to_offset)
    where = find_log(directory)
    with reading(where):
        printer = LinePrinter(OsFiles(), where, wanted, as_json=as_json)
        of_topic = os.path.basename(os.path.normpath(where)) != METADATA_PARTITION
        reader = LogReader(OsFiles(), where, printer.first_offset, of_topic=of_topic)
        while True:
            for found in reader.batches():
                for line in printer.lines(found):
                    sys.stdout.write(line + "\n")
                if printer.is_done:
                    break
            sys.stdout.flush()
            if printer.is_done or not follow:
                break
            _tell_truncation(reader)
            threading.Event().wait(_FOLLOW_SECONDS)
    if reader.incomplete_bytes:
        click.echo(f"{reader.incomplete_bytes} bytes of an unfinished batch follow", err=True)
    if printer.undecodable:
        raise KraftError(f"{printer.undecodable} records could not be decoded")


def _tell_truncation(reader: LogReader) -> None:
    if reader.truncations:
        click.echo(f"the log was cut back and goes on at offset {reader.end_offset}", err=True)
        reader.truncations = 0


@log.command()
@directory_argument
@json_option
def verify(directory: str, as_json: bool) -> int:
    """Check every CRC, offset, epoch, record and rule; exit code 1 if anything is wrong."""
    where = find_log(directory)
    with reading(where), progress_bar("verifying", log_bytes(where)) as advance:
        verdict = verify_log(OsFiles(), where, advance)
        if verdict.kind == "metadata" and not verdict.problems:
            verdict.problems += broken_rules(where)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(verdict)))
    else:
        _print_verdict(verdict)
    return 1 if verdict.problems else 0


def broken_rules(where: str) -> list[str]:
    """What a sound metadata log says that no cluster should: see `kraftpy audit`."""
    from kraftpy.audit.local import audit

    result = audit([where])
    shown = [str(each) for each in result.violations[:_RULES_SHOWN_MAX]]
    left = sum(result.counts.values()) - len(shown)
    return [*shown, f"and {left} more: see kraftpy audit {where}"] if left > 0 else shown


def _print_verdict(verdict: Verdict) -> None:
    facts = {
        "log": f"{verdict.directory} ({verdict.kind})",
        "offsets": f"{verdict.start_offset} to {verdict.end_offset}",
        "batches": f"{verdict.batches:,}",
        "records": f"{verdict.records:,}",
        "bytes": f"{verdict.bytes:,}",
        "epochs": f"{len(verdict.epochs):,}",
        "snapshots": f"{verdict.snapshots:,}",
    }
    console = plain_console()
    for name, value in facts.items():
        console.print(f"{name:<10} {value}")
    if verdict.incomplete_bytes:
        unfinished = f"{verdict.incomplete_bytes:,} bytes of a batch that is not whole"
        console.print(f"at the end {unfinished}: being written, or torn by a crash", style="yellow")
    for problem in verdict.problems:
        console.print(f"WRONG: {problem}", style="red")
    if not verdict.problems:
        console.print("sound", style="green")


@log.command()
@directory_argument
@click.option("--at", "offset", type=click.IntRange(0), metavar="OFFSET", help="Default: the end.")
@json_option
def show(directory: str, offset: int | None, as_json: bool) -> None:
    """Print the cluster as it was after every record before OFFSET."""
    image = image_at(find_log(directory), offset)
    if as_json:
        click.echo(json.dumps(image_to_json(image)))
    else:
        plain_console().print(image_tree(image))


@log.command()
@directory_argument
@click.option("--from", "from_offset", type=click.IntRange(0), metavar="A", required=True)
@click.option("--to", "to_offset", type=click.IntRange(0), metavar="B", help="Default: the end.")
@json_option
def diff(directory: str, from_offset: int, to_offset: int | None, as_json: bool) -> None:
    """Say what changed in the cluster between two offsets."""
    where = find_log(directory)
    before, after = image_at(where, from_offset), image_at(where, to_offset)
    sentences = before.diff(after)
    if as_json:
        offsets: dict[str, Any] = {"from": before.end_offset, "to": after.end_offset}
        click.echo(json.dumps({**offsets, "changes": sentences}))
        return
    for sentence in sentences:
        click.echo(sentence)


def image_at(directory: str, offset: int | None) -> ClusterImage:
    """The image at an offset; ConfigError if the log does not reach it."""
    with reading(directory):
        image = MetadataReader(OsFiles(), directory).image_at(offset)
    if offset is not None and image.end_offset != offset:
        raise ConfigError(f"offset {offset} is beyond the log, which ends at {image.end_offset}")
    return image


def log_bytes(directory: str) -> int:
    """The size of the segments, for a progress bar."""
    names = [name for name in os.listdir(directory) if name.endswith(".log")]
    return sum(os.path.getsize(os.path.join(directory, name)) for name in names)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that is told how far each step went; nothing where nobody looks."""
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.advance(task, step)


def plain_console() -> Console:
    """Colours on a terminal only; lines are never folded, so that a pipe gets them whole."""
    return Console(soft_wrap=True, highlight=False, markup=False)
