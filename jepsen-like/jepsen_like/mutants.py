"""Planted bugs of kraftpy's test nodes, and the run that shows each: a harness that finds nothing
in a broken cluster proves nothing about a whole one.

A bug is caught if a run with it is invalid; up to a few seeds are tried. What needs a rarer meeting
of events than a few minutes of load bring is caught by a simulation, whose command is named.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from jepsen_like.matrix import run_process

_SEEDS: Final = 3
_TIMEOUT_S: Final = 500.0
TABLE: Final = "table.md"
_SIM = "python -m pytest -q tests/property/test_partition_machine.py -k "


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a bug is shown."""

    mutant: str
    missing: str
    words: str  # Of `python -m jepsen_like run`.
    simulation: str = ""


_FAST = "--interval 2 --warmup 2 --settle 4"
RECIPES: Final[tuple[Recipe, ...]] = (
    Recipe(
        "ack_before_fsync",
        "acks and votes of controllers wait for the sync",
        f"--workload register --nemesis power-off --time 25 {_FAST}",
        "make sim-mutants",
    ),
    Recipe(
        "vote_not_persisted",
        "epoch and vote are stored",
        f"--workload register --nemesis kill,pause --time 30 {_FAST}",
        "make sim-mutants",
    ),
    Recipe(
        "answer_before_commit",
        "a write is answered when it is committed",
        f"--workload register --nemesis leader,partition --time 30 {_FAST}",
        "make sim-mutants",
    ),
    Recipe(
        "read_without_barrier",
        "a read waits for the proof of leadership",
        f"--workload register --nemesis partition,pause --time 30 {_FAST}",
        "make sim-mutants",
    ),
    Recipe(
        "lost_leadership_is_refused",
        "what may yet commit is not called refused",
        f"--workload register --nemesis leader,partition --time 30 {_FAST}",
        "make sim-mutants",
    ),
    Recipe(
        "snapshot_off_by_one",
        "a snapshot has every record",
        f"--workload register --nemesis kill-all --time 25 {_FAST} "
        "--set metadata.log.max.record.bytes.between.snapshots=5000",
    ),
    Recipe(
        "fenced_broker_elected",
        "only live brokers are elected",
        f"--workload log --nemesis kill,pause --time 25 {_FAST}",
        "python -m pytest -q tests/property/test_controller_planted_bugs.py",
    ),
    Recipe(
        "unclean_elections",
        "only members of the ISR are elected",
        f"--workload log --nemesis kill,pause,kill-all --time 25 {_FAST}",
        "python -m pytest -q tests/property/test_controller_planted_bugs.py",
    ),
    Recipe(
        "no_broker_epoch_check",
        "a broker's earlier life does not count",
        f"--workload log --nemesis lost-fsync,kill --time 30 {_FAST}",
        _SIM + "restarted_follower",
    ),
    Recipe(
        "duplicate_producer_id_block",
        "no producer id is given twice",
        f"--workload ids --nemesis none --time 5 {_FAST}",
        "make sim-mutants",
    ),
    Recipe(
        "high_watermark_without_epoch_check",
        "only fetches of the current leader epoch count",
        f"--workload log --nemesis leader,partition --time 30 {_FAST}",
        _SIM + "OldEpoch",
    ),
    Recipe(
        "isr_expansion_before_epoch_start",
        "who joins the ISR has all that may be committed",
        f"--workload log --nemesis kill,pause --time 30 {_FAST}",
        _SIM + "EarlyExpansion",
    ),
    Recipe(
        "truncate_to_high_watermark",
        "a follower cuts only where the leader's log differs",
        f"--workload log --nemesis leader,kill-all --time 30 {_FAST}",
        _SIM + "TruncatesToWatermark",
    ),
    Recipe(
        "high_watermark_on_current_isr",
        "the high watermark waits for pending members",
        f"--workload log --nemesis partition,pause --time 30 {_FAST}",
        _SIM + "'CommittedIsrOnly or ForgetfulShrink'",
    ),
    Recipe(
        "acks_all_is_one",
        "acks=all waits for the ISR",
        f"--workload log --nemesis partition,leader --time 25 {_FAST}",
        _SIM + "CountsItself",
    ),
    Recipe(
        "reads_past_the_high_watermark",
        "consumers see what is committed",
        f"--workload log --nemesis leader,partition --time 30 {_FAST}",
    ),
    Recipe(
        "idempotence_state_lost",
        "what producers sent is known after a restart",
        # Slowly: a send must be repeated over a restart and then find a leader.
        "--workload log --nemesis kill-all --time 60 --interval 12 --settle 8 -o retry_s=25",
        "python -m pytest -q tests/unit/broker/test_log_keeper.py -k producers_are_known_again",
    ),
    Recipe(
        "commit_before_written",
        "an offset commit is answered when it is written",
        f"--workload group --nemesis leader,kill --time 30 {_FAST}",
    ),
)


def run_all(out: str, only: str, *, fresh: bool) -> int:
    """Every bug whose name has `only` in it; 0 if each was caught somewhere."""
    chosen = [recipe for recipe in RECIPES if only in recipe.mutant]
    if not chosen:
        raise ValueError(f"no mutant has {only!r} in its name")
    rows: list[dict[str, Any]] = []
    for recipe in chosen:
        path = os.path.join(out, f"{recipe.mutant}.json")
        if fresh or not os.path.exists(path):
            row = hunt(recipe, out)
            os.makedirs(out, exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(row, file, indent=1)
    for recipe in RECIPES:
        known = _read(out, recipe)
        if known is not None:
            rows.append(known)
    table = as_table(rows)
    with open(os.path.join(out, TABLE), "w", encoding="utf-8") as file:
        file.write(table)
    sys.stdout.write(table)
    return 0 if all(row["caught"] or row["simulation"] for row in rows) else 1


def hunt(recipe: Recipe, out: str) -> dict[str, Any]:
    """Seed after seed, until a run is invalid."""
    tried: list[dict[str, Any]] = []
    caught = None
    for seed in range(1, _SEEDS + 1):
        directory = os.path.abspath(os.path.join(out, f"{recipe.mutant}-{seed}"))
        shutil.rmtree(directory, ignore_errors=True)
        words = ["run", *recipe.words.split(), "--mutant", recipe.mutant, "--seed", str(seed)]
        began = time.monotonic()
        found = run_process([*words, "--out", directory, "--json"], _TIMEOUT_S)
        seconds = round(time.monotonic() - began, 1)
        tried.append({"seed": seed, "verdict": found["verdict"], "seconds": seconds})
        sys.stdout.write(
            f"{recipe.mutant} seed {seed}: {found['verdict']} {found.get('anomalies')}"
            f" {found['reasons']}\n"
        )
        sys.stdout.flush()
        if found["verdict"] == "invalid":
            caught = {"seed": seed, "anomalies": found["anomalies"], "words": " ".join(words)}
            break
    return {
        "mutant": recipe.mutant,
        "missing": recipe.missing,
        "caught": caught,
        "tried": tried,
        "simulation": recipe.simulation,
        "date": time.strftime("%Y-%m-%d"),
    }


def _read(out: str, recipe: Recipe) -> dict[str, Any] | None:
    try:
        with open(os.path.join(out, f"{recipe.mutant}.json"), encoding="utf-8") as file:
            row: dict[str, Any] = json.load(file)
            return row
    except (OSError, ValueError):
        return None


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """The table of docs/jepsen.md."""
    lines = [
        "| planted bug | what is missing | the harness | command | a simulation |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        caught = row["caught"]
        seen = ", ".join(f"{n} {c}" for n, c in caught["anomalies"].items()) if caught else ""
        harness = f"seed {caught['seed']}: {seen}" if caught else f"not in {len(row['tried'])} runs"
        command = f"`python -m jepsen_like {caught['words']}`" if caught else ""
        simulation = f"`{row['simulation']}`" if row["simulation"] else ""
        lines.append(
            f"| {row['mutant']} | {row['missing']} | {harness} | {command} | {simulation} |"
        )
    return "\n".join(lines) + "\n"
