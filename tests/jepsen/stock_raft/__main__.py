"""`python -m tests.jepsen.stock_raft [--rounds 30] [--out DIR]`: attack stock pysyncobj until it
loses.

Ends with 0 when a round showed acknowledged writes that are gone: the harness found a real bug in
real software. Ends with 1 when no round did; then the harness is not proven, and neither is
pysyncobj.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from jepsen_like.checkers.judge import judge
from jepsen_like.history import read_history
from jepsen_like.report import write_report
from jepsen_like.verdict import Verdict

from tests.jepsen.stock_raft.attack import Round, RoundFailed

GONE = {"lost-write", "unseen"}


def one_round(directory: Path, seed: int) -> bool:
    """Whether acknowledged writes were lost in it."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        path = asyncio.run(Round(directory, seed).run())
    except (RoundFailed, OSError, TimeoutError) as error:
        sys.stdout.write(f"round {seed}: nothing to judge: {error}\n")
        return False
    judgement = judge(read_history(str(path)))
    write_report(judgement, str(directory / "report.html"))
    found = judgement.to_json()["anomalies"]
    said = ", ".join(f"{kind} {count}" for kind, count in found.items()) or "nothing seen"
    sys.stdout.write(f"round {seed}: {judgement.verdict.value}: {said}\n")
    sys.stdout.flush()
    return judgement.verdict is Verdict.INVALID and bool(GONE & set(found))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen.stock_raft")
    parser.add_argument("--rounds", type=int, default=30, help="give up after so many")
    parser.add_argument("--all", action="store_true", help="do not stop at the first that is found")
    parser.add_argument("--out", help="where histories and reports go")
    given = parser.parse_args()
    out = Path(given.out or tempfile.mkdtemp(prefix="stock-raft-"))
    found = []
    for seed in range(given.rounds):
        if one_round(out / f"round-{seed:03}", seed):
            found.append(seed)
            if not given.all:
                break
    sys.stdout.write(f"acknowledged writes were lost in rounds {found}; reports: {out}\n")
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main())
