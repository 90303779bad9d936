"""Short ways to put a request to a decision and to read its answer in every version."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from kraftpy.metadata_log import EMPTY, ClusterImage, MetadataRecord
from kraftpy.metadata_log.delta import replay_all
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.types import BrokerId, Uuid
from kraftpy.wire.apis import request_type, response_type
from kraftpy.wire.codec import build, decode, encode
from kraftpy.wire.schema import plan_of

CLUSTER_ID = Uuid(b"C" * 16)


def image_of(*records: MetadataRecord, base: ClusterImage = EMPTY) -> ClusterImage:
    """The image after these records, replayed as one batch."""
    return replay_all(base, records)


def situation(
    image: ClusterImage = EMPTY,
    *,
    seed: int = 0,
    now_ms: int = 0,
    voters: Iterable[int] = (1, 2, 3),
    heartbeats: Heartbeats | None = None,
    **settings: Any,
) -> Situation:
    return Situation(
        image=image,
        index=PartitionIndex(image),
        heartbeats=Heartbeats() if heartbeats is None else heartbeats,
        settings=ControllerSettings(
            cluster_id=CLUSTER_ID, voter_ids=tuple(BrokerId(n) for n in voters), **settings
        ),
        now_ms=now_ms,
        rng=random.Random(seed),
    )


def request(api_key: int, version: int, **values: Any) -> Any:
    """A request as it arrives, from mappings; what the version lacks is left out."""
    entity = request_type(api_key, version)
    return decode(entity, bytes(encode(build(entity, values))))


def answers(api_key: int, api: ControlApi, values: Mapping[str, Any]) -> dict[int, Any]:
    """The answer in every version that is served, as a client reads it.

    A name that no version has is a misspelt one, which `build` alone would drop without a word.
    """
    low, high = api.versions
    types = {version: response_type(api_key, version) for version in range(low, high + 1)}
    unknown = unknown_names(values, list(types.values()))
    assert not unknown, f"no version has {unknown}"
    return {
        version: decode(entity, bytes(encode(build(entity, values))))
        for version, entity in types.items()
    }


def unknown_names(values: Mapping[str, Any], types: list[type]) -> list[str]:
    plans: dict[str, list[type]] = {}
    for entity in types:
        plan = plan_of(entity)
        for each in (*plan.fields, *plan.tagged):
            plans.setdefault(each.name, []).extend([each.entity] if each.entity else [])
    unknown = [name for name in values if name not in plans]
    for name, value in values.items():
        inner = plans.get(name)
        if inner and value is not None:
            for item in [value] if isinstance(value, Mapping) else value:
                unknown += unknown_names(item, inner)
    return unknown


def ask(
    apis: Mapping[int, ControlApi], situation: Situation, api_key: int, version: int, **values: Any
) -> tuple[Decision, Any]:
    """The decision on a request, and its answer in that version; a refusal is answered, too."""
    message = request(api_key, version, **values)
    api = apis[api_key]
    try:
        decision = api.decide(situation, message)
    except Refused as refusal:
        refused = api.refuse(message, refusal.error_code, str(refusal))
        decision = Decision(records=(), response=refused)
    return decision, answers(api_key, api, decision.response)[version]
