"""For every rule a fault among a million good records, found by each engine: `make audit-proof`.

    python -m tests.audit_proof [--records 1000000] [--engine local] [--engine spark]
        [--engine catalyst]

Prints what was found in each log, and ends with 1 if a fault was missed, something else was found,
or a rule never fired. The oracle, catalyst, gets the same faults in small logs: it computes every
partition at every offset.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from kraftpy.audit.local import Options, audit
from kraftpy.audit.run import CATALYST, LOCAL, SPARK
from kraftpy.audit.violations import AuditResult
from kraftpy.clock import SystemClock
from tests.audit_proof.proving import Engine, Proof, Prover

ENGINES = (LOCAL, SPARK, CATALYST)


@click.command()
@click.option("--records", default=1_000_000, help="Good records around the faults of each log.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Only this one."
)
def main(records: int, engines: tuple[str, ...]) -> None:
    """Prove every rule."""
    clock = SystemClock()
    began = clock.monotonic_ms()
    wanted = [each for each in ENGINES if not engines or each in engines]
    proof = Proof()
    with tempfile.TemporaryDirectory(prefix="audit-proof-") as temporary:
        prover = Prover(Path(temporary), records, click.echo)
        large = [each for each in wanted if each != CATALYST]
        if large:
            _prove(prover, proof, large)
        if CATALYST in wanted:
            proof.wrong += _compare(Path(temporary) / "oracle")
    wrong = [*proof.wrong, *proof.silent()]
    for line in wrong:
        click.echo(line)
    took = (clock.monotonic_ms() - began) / 1000
    click.echo(
        f"{proof.planted} faults planted, {proof.records:,} records looked at, {took:.0f} s: "
        + (f"{len(wrong)} lines of what is wrong" if wrong else "all found, and nothing else")
    )
    sys.exit(1 if wrong else 0)


def _prove(prover: Prover, proof: Proof, engines: Sequence[str]) -> None:
    good = prover.good()
    click.echo(f"{good.records:,} good records in {good.end_offset:,} offsets")
    if SPARK in engines:
        with_session(lambda session: prover.logs(proof, good, _engines(engines, session)))
    else:
        prover.logs(proof, good, _engines(engines, None))
    prover.rest(proof, good, engines)


def _engines(names: Sequence[str], session: object) -> dict[str, Engine]:
    known: dict[str, Engine] = {LOCAL: audit}
    if session is not None:
        from kraftpy.audit.spark.pipeline import audit as audit_on

        def on_spark(paths: Sequence[str], options: Options) -> AuditResult:
            return audit_on(session, paths, options)  # type: ignore[arg-type]

        known[SPARK] = on_spark
    return {name: known[name] for name in names}


def with_session(work: Callable[[object], None]) -> None:
    from kraftpy.audit.spark.session import new_session

    session = new_session("local[2]")
    try:
        work(session)
    finally:
        session.stop()


def _compare(directory: Path) -> list[str]:
    """The oracle against the local engine, row by row, and against what nodes.py planted."""
    from tests.audit_proof.oracle import differences, local_rows, oracle_rows, write_small

    small = write_small(directory)
    ours = local_rows(small)
    due = small.quorum.due
    wrong: list[str] = []

    def compare(session: object) -> None:
        theirs, of_nodes = oracle_rows(session, small)
        wrong.extend(differences(ours, theirs))
        wrong.extend(f"nodes: {each} of one only" for each in sorted(of_nodes ^ due))

    with_session(compare)
    rows = sum(len(each) for each in ours.values()) + len(due)
    verdict = f"{len(wrong)} lines of difference" if wrong else "equal, row by row"
    click.echo(f"catalyst {len(ours) + 1} logs, {rows} rows are due: {verdict}")
    return [f"catalyst, {line}" for line in wrong]


if __name__ == "__main__":
    main()
