"""Every workload by name. W2 "txn" joins here, with transactions."""

from collections.abc import Callable, Mapping
from typing import Final

from jepsen_like.workloads.base import Surroundings, Workload
from jepsen_like.workloads.group import GroupWorkload
from jepsen_like.workloads.ids import IdsWorkload
from jepsen_like.workloads.log import LogWorkload
from jepsen_like.workloads.register import RegisterWorkload
from jepsen_like.workloads.topic_set import SetWorkload
from jepsen_like.workloads.watch import WatchWorkload

WORKLOADS: Final[Mapping[str, Callable[[Surroundings], Workload]]] = {
    "log": LogWorkload,
    "linger": LogWorkload,
    "register": RegisterWorkload,
    "set": SetWorkload,
    "ids": IdsWorkload,
    "group": GroupWorkload,
    "watch": WatchWorkload,
}

# Operations a second that a cluster on two cores takes without falling behind; None: no limit.
RATES: Final[Mapping[str, float | None]] = {
    "log": 700.0,
    "linger": None,
    "register": 150.0,
    "set": 60.0,
    "ids": 400.0,
    "group": 200.0,
    "watch": 100.0,
}
