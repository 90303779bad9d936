"""What the anomalies mean, a sentence each, for one who meets them for the first time; worst
first.
"""

from typing import Final

MEANING: Final[dict[str, str]] = {
    "lost-write": "acknowledged to the producer, and gone: a poll went over its offset without it",
    "unseen": "acknowledged, and not read by anyone up to the end of the log",
    "duplicate": "one value, sent once, stands at two offsets",
    "inconsistent-offsets": "different clients saw different values at one offset",
    "corrupt-read": "a poll was given records whose checksum is wrong",
    "g1a": "a value was read whose write had certainly failed",
    "phantom": "something was read that nobody had written",
    "nonmonotonic-poll": "a consumer's offsets went back without being told to",
    "poll-skip": "a consumer went over a record that others read",
    "nonmonotonic-send": "a producer's later record got an earlier offset",
    "realtime-inversion": "a record landed before another that was there already when it was sent",
    "stale-end": "the end of the log was reported too low; Kafka does not promise more",
    "not-linearizable": "no order of the operations explains the answers",
    "goes-back": "what brokers showed went back to an older value",
    "lost": "added, acknowledged, never removed, and missing in the end",
    "resurrected": "removed, acknowledged, and there again",
    "vanished": "shown by a node, then not, though nobody removed it",
    "failed-add": "listed, though its add had certainly failed",
    "final-differ": "nodes disagree in the end about something of unknown outcome",
    "duplicate-id": "two producers were given the same id",
    "bad-id": "a producer was given an impossible id",
    "lost-commit": "a committed offset was acknowledged and then forgotten",
    "stale-fetch": "an old coordinator answered from memory; Kafka does not promise more",
    "future-commit": "an offset was fetched that nobody had committed",
    "went-back": "a committed offset went back after all was healed",
    "divergent": "two nodes show different metadata at one offset",
    "gap": "a node left out metadata that others showed",
    "epoch-falls": "a later batch of metadata has an older epoch",
    "view-goes-back": "a broker's view of a partition went back to an older epoch",
    "two-leaders": "two leaders were named for one epoch",
    "never-recovered": "the cluster did not serve again when all faults were gone",
    "slow-recovery": "service was gone for longer than was allowed",
    "unexpected-exit": "a node ended on its own",
    "bad-line": "a node logged what should never be said",
}


def meaning(kind: str) -> str:
    return MEANING.get(kind, "a rule of the audit was broken")


def severity(kind: str) -> tuple[int, str]:
    """Sorts the worst first; what is not known here, the audit's rules, comes after."""
    kinds = list(MEANING)
    return (kinds.index(kind) if kind in MEANING else len(kinds), kind)
