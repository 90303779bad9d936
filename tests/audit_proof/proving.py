"""The proof: every planted fault is found where it is, and nothing else, by each engine.

Faults of records lie in logs of one node (planting.py), those of logs, snapshots and notes in three
nodes (nodes.py), those of data in two brokers' directories (data.py): with as many good records
around them in each. What is told is one line for whatever is not as it should be.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from kraftpy.audit.local import Options
from kraftpy.audit.rules import RULES
from kraftpy.audit.run import Asked, run_audit
from kraftpy.audit.violations import AuditResult
from kraftpy.storage.file_layer import OsFiles
from tests.audit_proof import data, nodes, planting
from tests.audit_proof.good import Good, good_records

Engine: TypeAlias = Callable[[Sequence[str], Options], AuditResult]
ALL = frozenset(rule.code for rule in RULES.values())


@dataclass
class Proof:
    """What came of it. `fired`: the rules that each engine found broken where they were."""

    wrong: list[str] = field(default_factory=list)
    fired: dict[str, set[str]] = field(default_factory=dict)
    planted: int = 0
    records: int = 0  # Looked at, over all logs and engines.

    def take(self, engine: str, what: str, result: AuditResult, wrong: Sequence[str]) -> None:
        self.wrong += [f"{engine}, {what}: {line}" for line in wrong]
        self.records += result.records
        self.fired.setdefault(engine, set()).update(result.counts)

    def silent(self) -> Iterator[str]:
        """Rules that never fired do not ship."""
        for engine, fired in sorted(self.fired.items()):
            missing = sorted(ALL - fired, key=lambda code: int(code[1:]))
            if missing:
                yield f"{engine}: {', '.join(missing)} never fired"


@dataclass(frozen=True)
class Prover:
    """Runs it in a directory, which it fills. `tell` hears of every step."""

    directory: Path
    records: int
    tell: Callable[[str], None] = lambda _line: None

    def good(self) -> Good:
        return good_records(self.records, self.directory)

    def logs(self, proof: Proof, good: Good, engines: Mapping[str, Engine]) -> None:
        """Faults of records, many in a log."""
        place = self.directory / "log"
        for name, cases in planting.plots(planting.every_case()).items():
            plot = planting.write_plot(name, cases, good, place)
            proof.planted += sum(bool(each.due) for each in plot.planted)
            for engine, audit in engines.items():
                result = audit([str(place)], Options(evidence=plot.evidence))
                wrong = planting.wrong(plot, result)
                proof.take(engine, name, result, wrong)
                self._told(engine, f"{name}, {len(cases)} cases", result, wrong)

    def rest(self, proof: Proof, good: Good, engines: Sequence[str]) -> None:
        """Faults of nodes and of data, by whole audits: each makes a session of its own."""
        quorum = nodes.write_nodes(good, self.directory / "nodes")
        brokers = data.write_brokers(self.records, self.directory / "data")
        proof.planted += len(quorum.due) + len(brokers.due)
        for engine in engines:
            asked = Asked(paths=[str(quorum.directory)], run="proof", engine=engine)
            self._whole(proof, "nodes", asked, quorum.due, quorum.records, _by_offset)
            asked = Asked(
                paths=[str(brokers.directory)],
                run="proof",
                engine=engine,
                with_data=True,
                history=str(brokers.history),
            )
            self._whole(proof, "data", asked, brokers.due, 0, _by_topic)

    def _whole(
        self,
        proof: Proof,
        what: str,
        asked: Asked,
        due: frozenset[Any],
        records: int,
        seen: Callable[[AuditResult], list[Any]],
    ) -> None:
        result = run_audit(OsFiles(), asked)
        wrong = list(differences(due, seen(result), result, records))
        proof.take(asked.engine, what, result, wrong)
        self._told(asked.engine, f"{what}, {len(due)} faults", result, wrong)

    def _told(self, engine: str, what: str, result: AuditResult, wrong: Sequence[str]) -> None:
        verdict = "; ".join(wrong) or "all found, and nothing else"
        took = sum(seconds for name, seconds in result.timings.items() if name != "all")
        self.tell(f"{engine:8} {what}: {result.records:,} records, {took:.1f} s: {verdict}")


def _by_offset(result: AuditResult) -> list[nodes.Found]:
    return [(each.rule, each.node, each.offset) for each in result.violations]


def _by_topic(result: AuditResult) -> list[data.Found]:
    return [(each.rule, each.node, each.topic or "") for each in result.violations]


def differences(
    due: frozenset[Any], found: Sequence[Any], result: AuditResult, records: int
) -> Iterator[str]:
    """What was due and is not there, and the other way round."""
    for each in sorted(due - set(found)):
        yield f"not found: {each}"
    for each in sorted(set(found) - due):
        yield f"found, and not due: {each}"
    if sum(result.counts.values()) != len(found):
        yield f"{sum(result.counts.values())} counted, {len(found)} told"
    if result.records < records:
        yield f"looked at {result.records} records only"
    yield from result.problems
