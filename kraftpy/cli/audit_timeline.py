"""One change of a partition as a line of text, or as JSON. Pure."""

from typing import Any

from kraftpy.audit.report.charts import clock_time
from kraftpy.audit.report.chronicle import PartitionEvent
from kraftpy.metadata_log.records import RECOVERING


def event_json(event: PartitionEvent) -> dict[str, Any]:
    place = {"offset": event.offset, "epoch": event.epoch, "timestamp": event.timestamp_ms}
    state = event.state
    if state is None:
        return {**place, "deleted": True}
    return {
        **place,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "elr": list(state.elr),
        "last_known_elr": list(state.last_known_elr),
        "adding": list(state.adding_replicas),
        "removing": list(state.removing_replicas),
        "recovering": state.leader_recovery_state == RECOVERING,
    }


def event_line(event: PartitionEvent) -> str:
    """Such as `412 e3 16:49:07 leader 2 (epoch 4/9) replicas 1,2,3 isr 2,3`."""
    head = f"{event.offset:>10} e{event.epoch} {clock_time(event.timestamp_ms, date=True)}"
    state = event.state
    if state is None:
        return f"{head} deleted"
    leader = "no leader" if state.leader < 0 else f"leader {state.leader}"
    words = [head, leader, f"(epoch {state.leader_epoch}/{state.partition_epoch})"]
    lists = {
        "replicas": state.replicas,
        "isr": state.isr,
        "elr": state.elr,
        "last": state.last_known_elr,
        "adding": state.adding_replicas,
        "removing": state.removing_replicas,
    }
    for name, ids in lists.items():
        if ids or name in ("replicas", "isr"):
            words.append(f"{name} {','.join(map(str, ids)) or '-'}")
    if state.leader_recovery_state == RECOVERING:
        words.append("recovering")
    return " ".join(words)
