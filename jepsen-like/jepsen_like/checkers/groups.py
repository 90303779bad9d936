"""Offsets of consumer groups: none that was committed is lost, none is read that was not.

For one group and partition the committed offsets grow, by one owner at a time. So the value at
any time is the highest offset committed so far, and a fetch in [c, r] must return at least the
highest offset that was acknowledged before c (else it is too low), and an offset whose commit
began before r (else it came from the future).

lost-commit    a fetch is too low, and it is certain that the answer was not merely old: it came
               after all was healed, or from the node that had itself acknowledged the higher
               offset. A node that acknowledged an offset knew it; to know less, it must have read
               a log that lacks it.
stale-fetch    a fetch is too low in the middle of faults, from another node. A coordinator that
               was deposed and does not know it yet answers from memory; Kafka allows it. Counted,
               not fatal.
future-commit  a fetch returned an offset whose commit nobody had begun, or that certainly failed.
went-back      after all was healed, a fetch returned less than an earlier one.

Without an answered fetch after the faults nothing was read in the end: unknown.
"""

from bisect import bisect_left
from typing import Final

from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "group-offsets"


def check(trace: Trace) -> CheckResult:
    findings = Findings(NAME)
    keys: dict[str, list[Call]] = {}
    for call in trace.of("commit", "fetch"):
        keys.setdefault(call.k or "", []).append(call)
    for key, calls in sorted(keys.items()):
        findings.examined += len(calls)
        commits = [call for call in calls if call.f == "commit"]
        fetches = [call for call in calls if call.f == "fetch" and call.ok]
        if commits and not any(trace.in_final_phase(fetch) for fetch in fetches):
            findings.doubt(f"{key}: not fetched after the faults")
        acked = _Acknowledged(commits)
        begun = {_offset(call): call for call in commits}
        highest: Call | None = None
        for fetch in sorted(fetches, key=lambda call: call.answer.i):
            _from_the_future(findings, key, fetch, begun)
            _too_low(findings, trace, key, fetch, acked)
            if trace.in_final_phase(fetch):
                if highest is not None and _fetched(fetch) < _fetched(highest):
                    if highest.answer.i < fetch.invoke.i:
                        findings.add(_went_back(key, highest, fetch))
                elif highest is None or _fetched(fetch) > _fetched(highest):
                    highest = fetch
    return findings.result()


class _Acknowledged:
    """The highest acknowledged commit before a line, of anyone or of one node."""

    def __init__(self, commits: list[Call]) -> None:
        self._all = self._rising([call for call in commits if call.ok])
        nodes = sorted({call.node for call in commits if call.ok and call.node is not None})
        self._by_node = {
            node: self._rising([call for call in commits if call.ok and call.node == node])
            for node in nodes
        }

    @staticmethod
    def _rising(commits: list[Call]) -> tuple[list[int], list[Call]]:
        lines: list[int] = []
        highest: list[Call] = []
        for call in sorted(commits, key=lambda call: call.answer.i):
            if not highest or _offset(call) > _offset(highest[-1]):
                lines.append(call.answer.i)
                highest.append(call)
        return lines, highest

    def before(self, line: int, node: str | None = None) -> Call | None:
        lines, highest = self._all if node is None else self._by_node.get(node, ([], []))
        place = bisect_left(lines, line)
        return highest[place - 1] if place else None


def _offset(call: Call) -> int:
    return int(call.invoke.v if call.invoke.off is None else call.invoke.off)


def _fetched(call: Call) -> int:
    return -1 if call.answer.v is None else int(call.answer.v)


def _from_the_future(findings: Findings, key: str, fetch: Call, begun: dict[int, Call]) -> None:
    offset = _fetched(fetch)
    commit = begun.get(offset)
    known = commit is not None and not commit.failed and commit.invoke.i < fetch.answer.i
    if offset < 0 or known:
        return
    why = "which nobody had committed"
    if commit is not None and commit.failed:
        why = "whose commit had failed"
    findings.add(
        Anomaly(
            kind="future-commit",
            message=f"{key}: a fetch returned {offset}, {why}",
            key=key,
            ops=numbers((fetch,) if commit is None else (commit, fetch)),
            offsets=(offset, offset),
        )
    )


def _too_low(findings: Findings, trace: Trace, key: str, fetch: Call, acked: _Acknowledged) -> None:
    commit = acked.before(fetch.invoke.i)
    offset = _fetched(fetch)
    if commit is None or offset >= _offset(commit):
        return
    certain = trace.in_final_phase(fetch)
    if not certain and fetch.node is not None:
        own = acked.before(fetch.invoke.i, fetch.node)
        if own is not None and offset < _offset(own):
            certain, commit = True, own
    said = "nothing" if offset < 0 else str(offset)
    by = f" by {commit.node}" if commit.node else ""
    findings.add(
        Anomaly(
            kind="lost-commit" if certain else "stale-fetch",
            message=f"{key}: {fetch.node or 'the coordinator'} returned {said} after"
            f" {_offset(commit)} was acknowledged{by}",
            fatal=certain,
            key=key,
            ops=numbers((commit, fetch)),
            offsets=(max(offset, 0), _offset(commit)),
        )
    )


def _went_back(key: str, before: Call, fetch: Call) -> Anomaly:
    return Anomaly(
        kind="went-back",
        message=f"{key}: a fetch returned {_fetched(before)}, a later one {_fetched(fetch)}",
        key=key,
        ops=numbers((before, fetch)),
        offsets=(max(_fetched(fetch), 0), _fetched(before)),
    )
