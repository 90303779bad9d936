"""What one run is asked to be."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """All that decides a run, but for chance inside of the cluster."""

    workload: str
    nemesis: tuple[str, ...] = ()
    time_s: float = 60.0
    directory: str = ""
    seed: int = 0
    clients: int = 8
    rate: float | None = None  # Operations a second; None: the workload's own.
    controllers: int = 3
    brokers: int = 3
    warmup_s: float = 3.0
    settle_s: float = 10.0
    final_s: float = 60.0
    interval_s: float = 5.0  # Mean time between faults, and of a fault.
    against: tuple[str, ...] = ()
    kraftpy: str | None = None
    audit: tuple[str, ...] = ()  # The command that audits collected logs; empty: found by itself.
    mutant: str | None = None
    workload_options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    command: str = ""
    keep_data: bool = True
