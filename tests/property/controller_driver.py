"""An active controller without its shell, and everything that must hold after each decision.

`ask` and `duty` decide, write and replay as the controller does (proposal.py), then judge: the
records against the rule book with what only the requester knew, the image as it stands, replay of
the bytes against the speculative image, the index against a fresh one, the answer against the
schema. Deciding twice gives the same: a decision changes nothing that it looks at.
"""

import random
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.audit.rules import Defaults, Evidence, LogAudit, check_batch, check_image
from kraftpy.metadata_log import EMPTY, MetadataRecord, replay_batch
from kraftpy.metadata_log.batches import metadata_records
from kraftpy.metadata_log.image import Partition
from kraftpy.quorum.control.api_table import CONTROL_APIS as TABLE
from kraftpy.quorum.control.decision import Decision, Refused, Situation
from kraftpy.quorum.control.features import bootstrap_records
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.quorum.control.partition_index import PartitionIndex, PartitionKey, all_partitions
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.proposal import Proposal, make_proposal
from kraftpy.storage.record_batch import read_header
from kraftpy.types import BrokerId
from kraftpy.wire.apis import response_type
from kraftpy.wire.codec import build, decode, encode
from tests.unit.control.makers import CLUSTER_ID, request, unknown_names

CONTROLLER = BrokerId(100)
NOTHING_SPECIAL: dict[str, Any] = {
    "unclean_elections": frozenset(),
    "unclean_restarts": frozenset(),
    "isr_requests": {},
    "caught_up": {},
}


class Broken(AssertionError):
    """What must hold does not."""


def demand(condition: bool, why: str) -> None:
    if not condition:
        raise Broken(why)


class Driver:
    """One cluster's controller through any number of epochs."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.settings = ControllerSettings(
            cluster_id=CLUSTER_ID, voter_ids=(CONTROLLER,), **settings
        )
        self.image = EMPTY
        self.epoch = 1
        self.now_ms = 1_000_000
        self.rng = random.Random(seed)
        self.index = PartitionIndex(EMPTY)
        self.heartbeats = Heartbeats()
        self.written = 0
        defaults = Defaults(
            min_insync_replicas=self.settings.min_insync_replicas,
            unclean_leader_election_enable=self.settings.unclean_leader_election_enable,
        )
        self._defaults = defaults
        self._audit = LogAudit(defaults=defaults)
        self._adopt(
            Decision(records=bootstrap_records(EMPTY, self.settings), response={}, own=True),
            Evidence(**NOTHING_SPECIAL),
        )

    # -- deciding ---------------------------------------------------------------------------------

    def ask(self, api_key: int, version: int, *, evidence: Any = None, **values: Any) -> Any:
        """The answer to a request, in its version; `evidence` is made from it, if it needs one."""
        message = request(api_key, version, **values)
        api = TABLE[api_key]
        try:
            decision = self._decide(lambda situation: api.decide(situation, message))
            assert decision is not None
            proposal = self._proposal(decision)
        except Refused as refused:
            refusal = api.refuse(message, refused.error_code, str(refused))
            return self._answer(api_key, version, refusal)
        response = decision.response
        if response.get("error_code", ErrorCode.none) is not ErrorCode.none:
            demand(not decision.records, "a refused request wrote records")
        answer = self._answer(api_key, version, response)
        known = NOTHING_SPECIAL | ({} if evidence is None else evidence(answer))
        self._adopt(decision, Evidence(**known), proposal)
        return answer

    def duty(self, decide: Callable[[Situation], Decision | None]) -> bool:
        """Something the controller does by itself; whether it wrote anything."""
        decision = self._decide(decide)
        if decision is None or not decision.records:
            return False
        self._adopt(decision, Evidence(**NOTHING_SPECIAL), self._proposal(decision))
        return True

    def fail_over(self) -> None:
        """Another controller becomes active: it knows the image and nothing else."""
        self.epoch += 1
        self.index = PartitionIndex(self.image)
        self.heartbeats = Heartbeats.of(self.image, self.now_ms)

    def _decide(self, decide: Callable[[Situation], Decision | None]) -> Decision | None:
        state = self.rng.getstate()
        try:
            first: Decision | Refused | None = decide(self._situation())
        except Refused as refused:
            first = refused
        self.rng.setstate(state)
        second = decide(self._situation())
        demand(isinstance(first, Decision | None), "refused first, then decided")
        if isinstance(first, Decision) and second is not None:
            demand(list(first.records) == list(second.records), "decided otherwise the second time")
        return second

    def _situation(self) -> Situation:
        return Situation(
            image=self.image,
            index=self.index,
            heartbeats=self.heartbeats,
            settings=self.settings,
            now_ms=self.now_ms,
            rng=self.rng,
        )

    def _proposal(self, decision: Decision) -> Proposal | None:
        if not decision.records:
            return None
        return make_proposal(self.image, decision, epoch=self.epoch, timestamp_ms=self.now_ms)

    def _answer(self, api_key: int, version: int, values: Any) -> Any:
        low, high = TABLE[api_key].versions
        types = [response_type(api_key, each) for each in range(low, high + 1)]
        demand(not unknown_names(values, types), f"{unknown_names(values, types)} in the answer")
        entity: Any = response_type(api_key, version)
        return decode(entity, bytes(encode(build(entity, values))))

    # -- judging ----------------------------------------------------------------------------------

    def _adopt(
        self, decision: Decision, evidence: Evidence, proposal: Proposal | None = None
    ) -> None:
        proposal = proposal or self._proposal(decision)
        if proposal is None:
            return
        before = self.image
        self.image = proposal.image
        self.index.move(proposal.image, proposal.changes)
        self.heartbeats.move(proposal.image, proposal.changes.brokers, self.now_ms)
        records: list[MetadataRecord] = []
        found = []
        image = before
        for base_offset, batch in proposal.batches:
            read = list(metadata_records(read_header(batch), memoryview(bytes(batch))))
            records += read
            image = replay_batch(image, read, base_offset, self.epoch, self.now_ms)
            found += self._audit.batch(
                read, base_offset=base_offset, epoch=self.epoch, evidence=evidence
            )
            # A node may stop after any batch: what it has is a legal image.
            found += check_image(image, defaults=self._defaults)
        demand(image == proposal.image, f"replay differs: {image.diff(proposal.image)}")
        # The same judged between two images, all batches of a transaction as one.
        found += check_batch(
            before,
            records,
            image,
            base_offset=proposal.batches[0][0],
            epoch=self.epoch,
            evidence=evidence,
            defaults=self._defaults,
            lookup=self.index,
        )
        self.written += len(records)
        demand(not found, "\n".join(dict.fromkeys(map(str, found))))
        self._check_index()

    def _check_index(self) -> None:
        mine, fresh = self.index, PartitionIndex(self.image)
        for name in ("leaderless", "reassigning", "not_preferred"):
            demand(getattr(mine, name)() == getattr(fresh, name)(), f"index: {name}")
        for broker_id in [*range(6)]:
            for name in ("holding", "leads_any", "preferring"):
                ours = getattr(mine, name)(BrokerId(broker_id))
                demand(ours == getattr(fresh, name)(BrokerId(broker_id)), f"index: {name}")

    # -- looking ----------------------------------------------------------------------------------

    def partitions(self) -> list[tuple[PartitionKey, Partition]]:
        return sorted(all_partitions(self.image), key=lambda each: each[0])

    def name_of(self, key: PartitionKey) -> str:
        return self.image.topics[key[0]].name
