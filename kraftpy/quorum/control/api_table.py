"""Every API that the active controller answers, of all subjects. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from kraftpy.quorum.control import (
    acls,
    broker_heartbeat,
    brokers,
    configs,
    controllers,
    directories,
    elections,
    features,
    isr,
    producer_ids,
    quotas,
    reassignment,
    scram,
    topics,
)
from kraftpy.quorum.control.decision import ControlApi

_SUBJECTS: Final[tuple[Mapping[int, ControlApi], ...]] = (
    acls.APIS,
    broker_heartbeat.APIS,
    brokers.APIS,
    configs.APIS,
    controllers.APIS,
    directories.APIS,
    elections.APIS,
    features.APIS,
    isr.APIS,
    producer_ids.APIS,
    quotas.APIS,
    reassignment.APIS,
    scram.APIS,
    topics.APIS,
)


def merged(subjects: Iterable[Mapping[int, ControlApi]]) -> Mapping[int, ControlApi]:
    """One table; two subjects that answer the same API are a mistake of ours."""
    table: dict[int, ControlApi] = {}
    for apis in subjects:
        twice = sorted(table.keys() & apis.keys())
        if twice:
            raise ValueError(f"two subjects answer API {twice[0]}")
        table.update(apis)
    return table


CONTROL_APIS: Final = merged(_SUBJECTS)
