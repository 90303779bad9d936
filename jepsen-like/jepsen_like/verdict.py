"""What a check says, and how many checks make one verdict.

A verdict is valid, invalid or unknown. Invalid beats unknown beats valid: one proof of a broken
promise is not undone by other checks, and what could not be decided is never passed off as held.
So these give unknown, not valid: a check that crashed, one that looked at no operation, and an
empty list of checks.

An `Anomaly` is one thing that was seen, with what a reader needs to see it too: the operations by
number, and the window of offsets and of time around them. A fatal anomaly breaks a promise and
makes its check invalid; the others are counted and shown only, since Kafka allows them.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

# A broken cluster can show the same thing a million times. All are counted, some are kept.
ANOMALIES_KEPT_MAX: Final = 100


class Verdict(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        """The code with which a command says it: 0 valid, 1 invalid, 2 unknown."""
        return (Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN).index(self)


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """Invalid beats unknown beats valid; of nothing, nothing is known."""
    seen = set(verdicts)
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN):
        if verdict in seen:
            return verdict
    return Verdict.VALID if seen else Verdict.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One thing that was seen. `ops` are the numbers of the operations that show it."""

    kind: str
    message: str
    fatal: bool = True
    key: str | None = None
    ops: tuple[int, ...] = ()
    offsets: tuple[int, int] | None = None  # First and last, inclusive.
    times_ns: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "message": self.message,
            "fatal": self.fatal,
            "key": self.key,
            "ops": list(self.ops),
            "offsets": list(self.offsets) if self.offsets else None,
            "times_ns": list(self.times_ns) if self.times_ns else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found: its verdict, why, how often, and the first anomalies of each kind."""

    name: str
    verdict: Verdict
    examined: int = 0  # How many things it looked at; a check of nothing decides nothing.
    reasons: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    anomalies: tuple[Anomaly, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "verdict": self.verdict.value,
            "examined": self.examined,
            "reasons": list(self.reasons),
            "counts": dict(sorted(self.counts.items())),
            "anomalies": [anomaly.to_json() for anomaly in self.anomalies],
            "figures": dict(self.figures),
        }


class Findings:
    """Collects what a check sees, counts all of it, and turns it into a result."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: dict[str, int] = {}
        self.fatal = False
        self.doubts: list[str] = []
        self.figures: dict[str, Any] = {}
        self.examined = 0
        self._kept: dict[str, list[Anomaly]] = {}

    def add(self, anomaly: Anomaly) -> None:
        self.counts[anomaly.kind] = self.counts.get(anomaly.kind, 0) + 1
        self.fatal = self.fatal or anomaly.fatal
        kept = self._kept.setdefault(anomaly.kind, [])
        if len(kept) < ANOMALIES_KEPT_MAX:
            kept.append(anomaly)

    def keeps(self, kind: str) -> bool:
        """Whether the next of this kind would be kept, so that it is worth describing well."""
        return len(self._kept.get(kind, ())) < ANOMALIES_KEPT_MAX

    def doubt(self, reason: str) -> None:
        """Something could not be decided: valid is out of reach."""
        if reason not in self.doubts:
            self.doubts.append(reason)

    def result(self) -> CheckResult:
        reasons = list(self.doubts)
        if not self.examined:
            reasons.append("nothing to examine")
        verdict = Verdict.INVALID if self.fatal else Verdict.UNKNOWN if reasons else Verdict.VALID
        return CheckResult(
            name=self.name,
            verdict=verdict,
            examined=self.examined,
            reasons=tuple(reasons),
            counts=self.counts,
            anomalies=tuple(a for kind in sorted(self._kept) for a in self._kept[kind]),
            figures=self.figures,
        )


def guarded(name: str, check: Callable[[], CheckResult]) -> CheckResult:
    """Run one check; if it raises, the answer is unknown, with the place where it broke."""
    try:
        return check()
    except Exception as error:  # A bug in a checker must not hide what the others found.
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
        reason = f"the check crashed: {type(error).__name__}: {error} ({place})"
        return CheckResult(name=name, verdict=Verdict.UNKNOWN, reasons=(reason,))
