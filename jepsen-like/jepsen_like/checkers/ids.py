"""Producer ids: no two producers ever get the same one.

A producer without a transactional id is given an id that nobody has, with epoch 0. Brokers hand
ids out of blocks that the controller allots; an id that is given twice means that a block was
allotted twice, or that a broker began one again. Idempotence then drops one producer's records as
the other's repeats.

duplicate-id  two answers hold the same id.
bad-id        an answer holds a negative id or epoch.

An unknown outcome says nothing: its id was lost with the answer, and is never used.
"""

from typing import Final

from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "ids"


def check(trace: Trace) -> CheckResult:
    findings = Findings(NAME)
    given: dict[int, Call] = {}
    for call in trace.ok("init"):
        findings.examined += 1
        producer_id, epoch = call.answer.v
        if producer_id < 0 or epoch < 0:
            message = f"{call.node or 'a broker'} gave id {producer_id} with epoch {epoch}"
            findings.add(Anomaly(kind="bad-id", message=message, ops=numbers((call,))))
            continue
        first = given.setdefault(producer_id, call)
        if first is not call:
            message = (
                f"id {producer_id} was given by {first.node or 'a broker'} and again by"
                f" {call.node or 'a broker'}"
            )
            ops = numbers((first, call))
            findings.add(
                Anomaly(kind="duplicate-id", message=message, key=str(producer_id), ops=ops)
            )
    findings.figures = {"ids": len(given)}
    return findings.result()
