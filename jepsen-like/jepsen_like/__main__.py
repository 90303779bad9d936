"""`python -m jepsen_like`: run, check, matrix, mutants. Exit code 0 valid, 1 invalid, 2 unknown."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from jepsen_like import matrix, mutants
from jepsen_like.nemesis.registry import NEMESES, parse
from jepsen_like.options import RunOptions
from jepsen_like.progress import Progress
from jepsen_like.runner import RunFailed, run
from jepsen_like.verdict import Verdict
from jepsen_like.verdicts import REPORT, judge_directory, summary
from jepsen_like.workloads.registry import WORKLOADS

_STORE = "jepsen-store"


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m jepsen_like", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _run_options(commands.add_parser("run", help="one run, judged"))
    check = commands.add_parser("check", help="judge a run's directory again")
    check.add_argument("directory")
    check.add_argument("--json", action="store_true")
    check.add_argument("--audit", default="", help="the command that audits collected logs")
    for name, text in (("smoke", "a few cells in five minutes"), ("matrix", "everything")):
        many = commands.add_parser(name, help=text)
        many.add_argument("--time", type=float, default=12.0 if name == "smoke" else 60.0)
        many.add_argument("--interval", type=float, default=2.5 if name == "smoke" else 5.0)
        many.add_argument("--settle", type=float, default=4.0 if name == "smoke" else 10.0)
        many.add_argument("--out", default=os.path.join(_STORE, name))
        many.add_argument("--only", default="", help="cells whose name has this in it")
        many.add_argument("--seed", type=int, default=1)
        many.add_argument("--fresh", action="store_true", help="run again what was run already")
    planted = commands.add_parser("mutants", help="see each planted bug caught")
    planted.add_argument("--out", default=os.path.join(_STORE, "mutants"))
    planted.add_argument("--only", default="")
    planted.add_argument("--fresh", action="store_true")
    return parser.parse_args(words)


def _run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--workload", required=True, choices=sorted(WORKLOADS))
    add("--nemesis", default="none", help=f"none, or some of {', '.join(sorted(NEMESES))}")
    add("--time", type=float, default=60.0, help="seconds of load with faults")
    add("--against", default="", help="HOST:PORT,... of a cluster that somebody else started")
    add("--out", default="", help=f"where it all goes; default {_STORE}/<workload>-<time>")
    add("--seed", type=int, default=int(time.time()) % 100_000)
    add("--clients", type=int, default=8)
    add("--rate", type=float, default=None, help="operations a second")
    add("--controllers", type=int, default=3)
    add("--brokers", type=int, default=3)
    add("--interval", type=float, default=5.0, help="mean seconds between faults")
    add("--warmup", type=float, default=3.0)
    add("--settle", type=float, default=10.0)
    add("--final", type=float, default=60.0, help="seconds for the last look, at most")
    add("--kraftpy", default=None, help="a command instead of test nodes: no clocks and disks then")
    add("--audit", default="", help="the command that audits collected logs")
    add("--mutant", default=None, help="a planted bug, for test nodes")
    add("-o", dest="options", action="append", default=[], metavar="KEY=VALUE")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    add("--json", action="store_true", help="the result as JSON, nothing else on stdout")


def _assignments(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"expected key=value, not {text!r}")
        found[key.strip()] = value.strip()
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return text


def run_options(given: argparse.Namespace, words: Sequence[str]) -> RunOptions:
    """ValueError says what is wrong."""
    nemesis = tuple(parse(given.nemesis))
    against = tuple(each for each in given.against.split(",") if each.strip())
    for place in against:
        if not place.rpartition(":")[2].isdigit():
            raise ValueError(f"--against: expected HOST:PORT, not {place!r}")
    if against and nemesis:
        raise ValueError("faults need a cluster of one's own: leave out --against or --nemesis")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{given.workload}-{'+'.join(nemesis) or 'none'}-{stamp}"
    options = {key: _value(value) for key, value in _assignments(given.options).items()}
    return RunOptions(
        workload=given.workload,
        nemesis=nemesis,
        time_s=given.time,
        directory=os.path.abspath(given.out or os.path.join(_STORE, name)),
        seed=given.seed,
        clients=given.clients,
        rate=given.rate,
        controllers=given.controllers,
        brokers=given.brokers,
        interval_s=given.interval,
        warmup_s=given.warmup,
        settle_s=given.settle,
        final_s=given.final,
        against=against,
        kraftpy=given.kraftpy,
        audit=tuple(given.audit.split()),
        mutant=given.mutant,
        workload_options=options,
        settings=_assignments(given.settings),
        command="python -m jepsen_like " + " ".join(words),
    )


def _run(given: argparse.Namespace, words: Sequence[str]) -> int:
    options = run_options(given, words)
    progress = Progress(quiet=given.json)
    run(options, progress)
    return _judge(options.directory, options.audit, progress, as_json=given.json)


def _judge(directory: str, audit: tuple[str, ...], progress: Progress, *, as_json: bool) -> int:
    found = judge_directory(directory, audit)
    if as_json:
        sys.stdout.write(json.dumps(found.to_json()) + "\n")
        return found.verdict.exit_code
    said = summary(found)
    progress.done(
        f"{said['verdict']}: {said['operations']} operations, {said['ok']} ok, {said['info']} "
        f"unknown; {said['faults']} faults; longest gap {said['longest_gap_s']} s"
    )
    for name, count in said["anomalies"].items():
        progress.done(f"  {name}: {count}")
    for reason in said["reasons"]:
        progress.done(f"  {reason}")
    if said["audit"] == "unknown":
        progress.done("  the nodes' own logs: unknown, since no audit has judged them")
    progress.done(f"  {os.path.join(directory, REPORT)}")
    return found.verdict.exit_code


def main(words: Sequence[str]) -> int:
    given = arguments(words)
    try:
        match given.command:
            case "run":
                return _run(given, words)
            case "check":
                audit = tuple(given.audit.split())
                return _judge(given.directory, audit, Progress(), as_json=given.json)
            case "smoke" | "matrix" as which:
                cells = matrix.SMOKE if which == "smoke" else matrix.MATRIX
                return matrix.run_cells(cells, given)
            case _:
                return mutants.run_all(given.out, given.only, fresh=given.fresh)
    except (ValueError, RunFailed) as error:
        sys.stderr.write(f"jepsen_like: {error}\n")
        return Verdict.UNKNOWN.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
