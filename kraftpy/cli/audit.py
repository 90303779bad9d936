"""`kraftpy audit`: which rules of the catalogue a recorded cluster broke, where, and since when.

PATH is a metadata log's directory, a node's data directory, or a directory of such; of any number
of nodes, kraftpy's or Apache Kafka's. Nothing is locked or written there. Exit codes: 0 clean, 1
violations, 2 could not check.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from kraftpy import logs
from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.rule import Rule
from kraftpy.cli.log import plain_console
from kraftpy.clock import SystemClock
from kraftpy.errors import ConfigError, KraftError
from kraftpy.storage.file_layer import OsFiles

_COULD_NOT_CHECK: Final = 2
_SHOWN_MAX: Final = 5
_UNCHECKED_SHOWN_MAX: Final = 10
_STATE_STYLES: Final = {"CRITICAL": "red", "ERROR": "yellow", "WARNING": ""}


class AuditGroup(click.Group):
    """`kraftpy audit PATH` is the command that has no name of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=AuditGroup)
def audit() -> None:
    """Check recorded metadata logs: audit PATH..., explain RULE, timeline.

    `kraftpy audit PATH...` names every broken rule with its offset. Exit codes: 0 clean, 1
    violations, 2 could not check. More: kraftpy audit run --help.
    """
    logs.configure(log_format="text", level="error", stream=sys.stderr, clock=SystemClock())


@audit.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark", "catalyst"]),
    default="local",
    show_default=True,
    help="catalyst: the rules as SQL, for small logs.",
)
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.option("--out", metavar="DIR", help="Write violations, result.json and report.html there.")
@click.option("--state", metavar="DIR", help="Keep what was read; read only what is new next time.")
@click.option("--rule", "rules", metavar="A12", multiple=True, help="Only this rule; repeatable.")
@click.option("--data", "with_data", is_flag=True, help="Also brokers' partitions of data.")
@click.option(
    "--history", metavar="FILE", help="What producers were told, as the harness writes it."
)
@click.option(
    "--replay",
    type=click.Choice(["sharded", "chunked"]),
    help="How Spark's tasks share the replay; chosen by their number.",
)
@click.option("--master", metavar="URL", help="Spark's master; default local[*].")
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting of Spark's.")
def run(
    paths: tuple[str, ...],
    engine: str,
    as_json: bool,
    out: str | None,
    state: str | None,
    rules: tuple[str, ...],
    with_data: bool,
    history: str | None,
    replay: str | None,
    master: str | None,
    conf: tuple[str, ...],
) -> int:
    """Audit the logs in PATH..., of any number of nodes."""
    from kraftpy.audit.run import Asked, run_audit

    wanted = frozenset(_rule(text).code for text in rules) or None
    if engine != "local":
        from kraftpy.cli.java import require_java

        require_java()
    try:
        with _progress() as progress:
            asked = Asked(
                paths=paths,
                run=_run_name(),
                engine=engine,
                with_data=with_data,
                history=history,
                rules=wanted,
                state=state,
                replay=replay,
                master=master,
                conf=_pairs(conf),
                progress=progress,
            )
            result = run_audit(OsFiles(), asked)
        written = _write(result, out) if out is not None else []
    except ConfigError:
        raise
    except (KraftError, OSError) as error:
        click.echo(f"kraftpy: {error}", err=True)
        return _COULD_NOT_CHECK
    _tell(result, written, as_json=as_json)
    return int(result.exit_code)


def _run_name() -> str:
    return f"audit-{SystemClock().now_ms()}"


def _pairs(conf: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in conf:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--conf {text}: that is not KEY=VALUE")
        found[name] = value
    return found


def _rule(text: str) -> Rule:
    """By number (A12, 12) or name; ConfigError names the range."""
    lower = text.lower().removeprefix("a")
    if lower.isdigit() and int(lower) in RULES:
        return RULES[int(lower)]
    for rule in RULES.values():
        if rule.name == text.lower():
            return rule
    raise ConfigError(f"there is no rule {text}: they are A1 to A{max(RULES)}, or their names")


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar on stderr; nothing where nobody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"))
    console = Console(stderr=True)
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, whole: int) -> None:
            if what not in tasks:
                for ended in bar.tasks:
                    bar.update(ended.id, total=ended.completed)
                    bar.stop_task(ended.id)
                tasks[what] = bar.add_task(what, total=whole or None)
            bar.update(tasks[what], completed=done, total=whole or None)

        yield tell


# -- what was found --------------------------------------------------------------------------------


def _write(result: Any, out: str) -> list[str]:
    """The files; OSError if the directory cannot be written."""
    from kraftpy.audit.run import make_report
    from kraftpy.audit.violations import json_lines, result_json

    os.makedirs(out, exist_ok=True)
    lines = "".join(f"{line}\n" for line in json_lines(result.violations))
    contents = {
        "violations.jsonl": lines,
        "result.json": result_json(result) + "\n",
        "report.html": make_report(OsFiles(), result),
    }
    written = []
    for name, text in contents.items():
        path = os.path.join(out, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        written.append(path)
    return [*written, *_write_parquet(result, out)]


def _write_parquet(result: Any, out: str) -> list[str]:
    from kraftpy.audit.violations import write_parquet

    path = os.path.join(out, "violations.parquet")
    try:
        write_parquet(result.violations, path)
    except ImportError:
        return []  # pyarrow comes with kraftpy[audit]; the other files say the same.
    return [path]


def _tell(result: Any, written: Sequence[str], *, as_json: bool) -> None:
    from kraftpy.audit.violations import result_json

    for problem in result.problems:
        click.echo(f"kraftpy: {problem}", err=True)
    if as_json:
        whole = json.loads(result_json(result))
        whole["found"] = [str(each) for each in result.violations]
        click.echo(json.dumps(whole))
        return
    console = plain_console()
    _tell_summary(console, result)
    _tell_rules(console, result)
    for each in result.unchecked[:_UNCHECKED_SHOWN_MAX]:
        where = f" at offset {each.offset}" if each.offset >= 0 else ""
        console.print(f"not checked: {each.kind.replace('_', ' ')}{where}: {each.reason}")
    if len(result.unchecked) > _UNCHECKED_SHOWN_MAX:
        console.print(f"not checked: and {len(result.unchecked) - _UNCHECKED_SHOWN_MAX} more")
    for path in written:
        console.print(f"written    {path}")
    _tell_verdict(console, result)


def _tell_summary(console: Console, result: Any) -> None:
    for node in result.nodes:
        kind = f"{node.format}, " if node.format else ""
        offsets = f"offsets {node.start_offset:,} to {node.end_offset:,}"
        what = f"{kind}{offsets}, {node.snapshots} snapshots"
        console.print(f"node {node.node:<5} {what}, {node.path}")
    seen = sum(1 for count in result.looked_at.values() if count)
    console.print(f"replayed   {result.records:,} records")
    console.print(f"rules      {seen} of {len(RULES)} had something to look at")


def _tell_rules(console: Console, result: Any) -> None:
    for code in sorted(result.counts, key=lambda code: int(code[1:])):
        rule = RULES[int(code[1:])]
        style = _STATE_STYLES[rule.severity.name]
        count = result.counts[code]
        console.print(f"{code} {rule.name}: {count:,} time{'s' * (count != 1)}", style=style)
        for each in [v for v in result.violations if v.rule == code][:_SHOWN_MAX]:
            console.print(f"    {str(each).partition(' (')[2].join(('(', ''))}")
    if result.secondary:
        count = sum(result.secondary.values())
        console.print(f"{count:,} more follow from what is missing in the log")


def _tell_verdict(console: Console, result: Any) -> None:
    match int(result.exit_code):
        case 0:
            console.print("clean", style="green")
        case 1:
            console.print(f"{sum(result.counts.values()):,} violations", style="red")
        case _:
            console.print("could not check", style="yellow")


# -- explain and timeline --------------------------------------------------------------------------


@audit.command()
@click.argument("rule", metavar="RULE")
def explain(rule: str) -> None:
    """Say what a rule means, what breaking it costs and what it needs. RULE: A12, or a name."""
    found = _rule(rule)
    click.echo(f"{found.code} {found.name}")
    click.echo(f"  {found.sentence}")
    click.echo(f"severity  {found.severity.name.lower()}: {found.severity.value}")
    click.echo(f"needs     {found.needs}")


@audit.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--topic", metavar="T", required=True)
@click.option("--partition", type=click.IntRange(0), metavar="P", required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def timeline(paths: tuple[str, ...], topic: str, partition: int, as_json: bool) -> int:
    """Print every change of one partition, in order: leader, ISR, ELR, epochs."""
    from kraftpy.audit.recorded.places import find_places
    from kraftpy.audit.report.chronicle import chronicle_of
    from kraftpy.cli.audit_timeline import event_json, event_line

    places = find_places(paths)
    if not places:
        raise ConfigError(f"{paths[0]}: no metadata log is in it")
    found = chronicle_of(OsFiles(), places[0].log, [(topic, partition)])
    events = found.partitions.get((topic, partition), [])
    for event in events:
        click.echo(json.dumps(event_json(event)) if as_json else event_line(event))
    if found.problem is not None:
        click.echo(f"kraftpy: read up to here: {found.problem}", err=True)
        return _COULD_NOT_CHECK
    if not events:
        raise ConfigError(f"{places[0].log} never mentions {topic}-{partition}")
    return 0
