"""How long judging takes: `python -m tests.jepsen.speed [calls]`, for the long workloads."""

import random
import sys
import tempfile
import time
from pathlib import Path

from jepsen_like.checkers.judge import judge
from jepsen_like.history import History, HistoryWriter, read_history

from tests.jepsen import sample


def histories(calls: int) -> dict[str, History]:
    """Valid histories as a run would write them; polls bring back several records each."""
    register = sample.RegisterSampler(random.Random(2), clients=8, info_share=0.02)
    register.run(calls)
    return {
        "log": sample.log_history(1, calls, clients=8, options={"partitions": 6}),
        "register": register.history(),
    }


def write(history: History, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        writer = HistoryWriter(file, history.header)
        for op in history.ops:
            fields = {n: getattr(op, n) for n in ("k", "v", "off", "lepoch", "node", "err")}
            writer.write(op.t, op.p, op.type, op.f, **fields)


def main(calls: int) -> None:
    for name, history in histories(calls).items():
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "history.jsonl"
            write(history, path)
            begin = time.perf_counter()
            loaded = read_history(str(path))
            read_s = time.perf_counter() - begin
        begin = time.perf_counter()
        judgement = judge(loaded)
        judge_s = time.perf_counter() - begin
        sys.stdout.write(
            f"{name}: {calls} calls, {len(loaded.ops)} lines, read {read_s:.2f} s,"
            f" judged {judge_s:.2f} s, {judgement.verdict.value}\n"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
