"""What voters say to each other, as msgpack. Pure.

The names and fields are pysyncobj's for its own messages, ours for the rest. `decode` lets nothing
through that is not exactly one of these, since what it returns goes straight into the core: an
unknown type, a missing or extra field, or a field of another type is a WireError.
"""

from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from kraftpy.errors import WireError
from kraftpy.limits import PEER_FRAME_BYTES_MAX
from kraftpy.quorum.raft.entries import Command

_INDEX: Final = (int,)
_OPTIONAL_INDEX: Final = (int, type(None))
_FIELDS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    # The core's own.
    "request_vote": {"term": _INDEX, "last_log_index": _INDEX, "last_log_term": _INDEX},
    "response_vote": {"term": _INDEX},
    "timeout_now": {"term": _INDEX},
    "append_entries": {
        "term": _INDEX,
        "commit_index": _INDEX,
        "entries": (list,),
        "prevLogIdx": _OPTIONAL_INDEX,
        "prevLogTerm": _OPTIONAL_INDEX,
        "round": _INDEX,
    },
    "next_node_idx": {
        "term": _INDEX,
        "next_node_idx": _INDEX,
        "reset": (bool,),
        "success": (bool,),
        "round": _INDEX,
        "end_offset": _INDEX,
    },
    # Ours: the core never sees them.
    "pre_vote": {"term": _INDEX, "last_log_index": _INDEX, "last_log_term": _INDEX},
    "pre_vote_response": {"term": _INDEX, "granted": (bool,), "epoch": _INDEX},
    "stale_term": {"term": _INDEX},
    "snapshot_chunk": {
        "term": _INDEX,
        "end_offset": _INDEX,
        "epoch": _INDEX,
        "size": _INDEX,
        "position": _INDEX,
        "data": (bytes,),
    },
    "snapshot_response": {
        "term": _INDEX,
        "end_offset": _INDEX,
        "epoch": _INDEX,
        "position": _INDEX,
    },
}


def encode(message: dict[str, Any]) -> bytes:
    """The bytes of a message; batches are read from the log here if memory has them no more."""
    packed: bytes = msgpack.packb(message, default=_plain)
    return packed


def _plain(value: object) -> object:
    if isinstance(value, Command):
        return value.data()
    raise TypeError(f"{type(value).__name__} cannot be sent")


def decode(data: bytes | memoryview) -> dict[str, Any]:
    """A message that is safe to hand to the core."""
    try:
        message = msgpack.unpackb(data, max_bin_len=PEER_FRAME_BYTES_MAX, use_list=True)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise WireError(f"not a message: {error or type(error).__name__}") from None
    if type(message) is not dict:
        raise WireError("a message is a map")
    kind = message.get("type")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise WireError(f"unknown message {kind!r}")
    if message.keys() != fields.keys() | {"type"}:
        raise WireError(f"{kind}: fields {sorted(map(str, message))}")
    for name, allowed in fields.items():
        value = message[name]
        if type(value) not in allowed or (type(value) is int and value < -1):
            raise WireError(f"{kind}: {name} may not be {type(value).__name__}")
    if kind == "append_entries":
        message["entries"] = [_entry(each) for each in message["entries"]]
    return message


def _entry(found: Any) -> tuple[Command, int, int]:
    if type(found) is not list or [type(each) for each in found] != [bytes, int, int]:
        raise WireError("append_entries: an entry is (batch, index, term)")
    data, index, term = found
    return Command.of(data), index, term
