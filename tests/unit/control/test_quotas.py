"""Client quotas: what may be set for whom, and what was set is what is described."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log import ClusterImage
from kraftpy.metadata_log.codec import decode_record, encode_record
from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import ClientQuotaRecord, QuotaEntity
from kraftpy.quorum.control.decision import Decision, Situation
from kraftpy.quorum.control.quotas import APIS, decide_alter_client_quotas
from kraftpy.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from tests.unit.control.makers import answers, ask, image_of, request, situation
from tests.unit.metadata_log.makers import quota

Names = dict[str, str | None]
ALICE: Names = {"user": "alice"}
PRODUCER = "producer_byte_rate"


def entry(entity: Names, **values: float | None) -> dict[str, Any]:
    """None removes a quota."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in values.items()
        ],
    }


def alter(
    image: ClusterImage, *entries: dict[str, Any], version: int = 1, validate_only: bool = False
) -> tuple[Decision, list[ErrorCode]]:
    decision, answer = ask(
        APIS,
        situation(image),
        ALTER_CLIENT_QUOTAS,
        version,
        entries=entries,
        validate_only=validate_only,
    )
    assert len(answer.entries) == len(entries)
    return decision, [each.error_code for each in answer.entries]


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_set_for_an_entity_in_one_order_of_types(version: int) -> None:
    both: Names = {"user": None, "client-id": "app"}
    decision, codes = alter(image_of(), entry(both, producer_byte_rate=1024.0), version=version)
    assert codes == [ErrorCode.none]
    assert decision.records == [
        ClientQuotaRecord(
            entity=(
                QuotaEntity(entity_type="client-id", entity_name="app"),
                QuotaEntity(entity_type="user", entity_name=None),
            ),
            key=PRODUCER,
            value=1024.0,
        )
    ]


def test_only_what_differs_is_written() -> None:
    image = image_of(quota(1024.0))
    for value, count in ((1024.0, 0), (2048.0, 1), (None, 1)):
        decision, codes = alter(image, entry(ALICE, producer_byte_rate=value))
        assert (codes, len(decision.records)) == ([ErrorCode.none], count)
    decision, codes = alter(image, entry(ALICE, consumer_byte_rate=None))
    assert (codes, decision.records) == ([ErrorCode.none], [])


def test_the_last_quota_removed_leaves_no_entity() -> None:
    image = image_of(quota(1024.0))
    decision, _ = alter(image, entry(ALICE, producer_byte_rate=None))
    assert not replay_all(image, decision.records).quotas


def test_a_quota_that_nobody_can_set_any_more_can_be_removed() -> None:
    entity = (QuotaEntity(entity_type="user", entity_name="alice"),)
    image = image_of(ClientQuotaRecord(entity=entity, key="old", value=1.0))
    decision, codes = alter(image, entry(ALICE, old=None))
    assert (codes, len(decision.records)) == ([ErrorCode.none], 1)


@pytest.mark.parametrize(
    "entity",
    [
        {},
        {"group": "x"},
        {"user": ""},
        {"client-id": ""},
        {"ip": ""},
        {"ip": "nowhere.example"},
        {"ip": "10.0.0.0/8"},
        {"ip": "10.0.0.1", "user": "alice"},
        {"ip": None, "client-id": None},
    ],
)
def test_entities_that_are_refused(entity: Names) -> None:
    decision, codes = alter(
        image_of(), entry(entity, connection_creation_rate=1.0), entry(ALICE, request_percentage=1)
    )
    assert codes == [ErrorCode.invalid_request, ErrorCode.none]
    assert len(decision.records) == 1


@pytest.mark.parametrize(
    ("entity", "key", "value", "error_code"),
    [
        (ALICE, PRODUCER, 0.0, ErrorCode.invalid_request),
        (ALICE, PRODUCER, -1.0, ErrorCode.invalid_request),
        (ALICE, PRODUCER, 0.5, ErrorCode.invalid_request),
        (ALICE, PRODUCER, 1.0 + 1e-7, ErrorCode.none),
        (ALICE, PRODUCER, 1e19, ErrorCode.invalid_request),
        (ALICE, PRODUCER, float(2**63), ErrorCode.none),
        (ALICE, "request_percentage", 0.5, ErrorCode.none),
        (ALICE, "request_percentage", math.inf, ErrorCode.invalid_request),
        (ALICE, "request_percentage", math.nan, ErrorCode.invalid_request),
        (ALICE, "controller_mutation_rate", 1e300, ErrorCode.none),
        (ALICE, "connection_creation_rate", 1.0, ErrorCode.invalid_request),
        (ALICE, "no_such_rate", 1.0, ErrorCode.invalid_request),
        ({"client-id": "app"}, "consumer_byte_rate", 7.0, ErrorCode.none),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 7.0, ErrorCode.none),
        ({"ip": "::1"}, "connection_creation_rate", 7.0, ErrorCode.none),
        ({"ip": None}, "connection_creation_rate", 7.0, ErrorCode.none),
        ({"ip": None}, "connection_creation_rate", 2.0**31, ErrorCode.invalid_request),
        ({"ip": None}, "connection_creation_rate", 1.5, ErrorCode.invalid_request),
        ({"ip": None}, PRODUCER, 7.0, ErrorCode.invalid_request),
    ],
)
def test_values_that_are_taken_or_refused(
    entity: Names, key: str, value: float, error_code: ErrorCode
) -> None:
    decision, codes = alter(image_of(), entry(entity, **{key: value}))
    assert codes == [error_code]
    assert len(decision.records) == (1 if error_code is ErrorCode.none else 0)
    for record in decision.records:
        assert decode_record(encode_record(record)) == record


def test_an_entity_with_a_wrong_quota_keeps_all_it_has() -> None:
    decision, codes = alter(image_of(), entry(ALICE, request_percentage=1.0, no_such_rate=1.0))
    assert (codes, decision.records) == ([ErrorCode.invalid_request], [])


def test_what_is_said_twice_is_refused() -> None:
    twice = entry(ALICE, producer_byte_rate=1.0)
    decision, codes = alter(image_of(), twice, twice, entry({"user": "bob"}, request_percentage=1))
    assert codes == [ErrorCode.invalid_request, ErrorCode.invalid_request, ErrorCode.none]
    assert len(decision.records) == 1
    same_key = {**twice, "ops": twice["ops"] * 2}
    same_type = {**twice, "entity": [*twice["entity"], *entry({"user": "bob"})["entity"]]}
    for planted in (same_key, same_type):
        decision, codes = alter(image_of(), planted)
        assert (codes, decision.records) == ([ErrorCode.invalid_request], [])


def test_validate_only_writes_nothing_but_refuses_the_same() -> None:
    for value, error_code in ((1.0, ErrorCode.none), (0.0, ErrorCode.invalid_request)):
        decision, codes = alter(
            image_of(), entry(ALICE, producer_byte_rate=value), validate_only=True
        )
        assert (codes, decision.records) == ([error_code], ())


def test_refusals_for_all_are_answered() -> None:
    asked: dict[int, dict[str, Any]] = {
        ALTER_CLIENT_QUOTAS: {"entries": [entry(ALICE)], "validate_only": False},
        DESCRIBE_CLIENT_QUOTAS: {"components": [], "strict": False},
    }
    for api_key, values in asked.items():
        api = APIS[api_key]
        message = request(api_key, 1, **values)
        found = answers(api_key, api, api.refuse(message, ErrorCode.not_controller, "not here"))
        for answer in found.values():
            carrier = answer.entries[0] if api_key == ALTER_CLIENT_QUOTAS else answer
            assert carrier.error_code is ErrorCode.not_controller
            assert carrier.error_message == "not here"


# -- alter, then describe ---------------------------------------------------------------------

users = st.sampled_from([None, "alice", "bob"])
entities = st.one_of(
    st.fixed_dictionaries({"user": users}),
    st.fixed_dictionaries({"client-id": users}),
    st.fixed_dictionaries({"user": users, "client-id": users}),
)
keys = st.sampled_from([PRODUCER, "consumer_byte_rate", "request_percentage"])
values = st.one_of(st.none(), st.integers(1, 9).map(float))
changes = st.lists(st.tuples(entities, st.dictionaries(keys, values, max_size=2)), max_size=12)
Decide = Callable[[Situation, Any], Decision]


def check_described(decide: Decide, asked: list[tuple[Names, dict[str, float | None]]]) -> None:
    """After any sequence of alterations the description is what a plain dict says."""
    image, expected = image_of(), dict[tuple[Any, ...], dict[str, float]]()
    for entity, wanted in asked:
        message = request(
            ALTER_CLIENT_QUOTAS, 1, entries=[entry(entity, **wanted)], validate_only=False
        )
        image = replay_all(image, decide(situation(image), message).records)
        mine = expected.setdefault(tuple(sorted(entity.items())), {})
        for key, value in wanted.items():
            mine.pop(key, None)
            if value is not None:
                mine[key] = value
    _, answer = ask(APIS, situation(image), DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
    described = {
        tuple((each.entity_type, each.entity_name) for each in found.entity): {
            each.key: each.value for each in found.values
        }
        for found in answer.entries
    }
    assert described == {key: mine for key, mine in expected.items() if mine}


@given(changes)
def test_what_was_set_is_described(asked: list[tuple[Names, dict[str, float | None]]]) -> None:
    check_described(decide_alter_client_quotas, asked)


def test_a_planted_lost_removal_is_seen() -> None:
    def keep_all(situation: Situation, message: Any) -> Decision:
        decision = decide_alter_client_quotas(situation, message)
        kept = [
            record
            for record in decision.records
            if isinstance(record, ClientQuotaRecord) and not record.remove
        ]
        return replace(decision, records=kept)

    asked: list[tuple[Names, dict[str, float | None]]] = [
        (ALICE, {PRODUCER: 1.0}),
        (ALICE, {PRODUCER: None}),
    ]
    check_described(decide_alter_client_quotas, asked)
    with pytest.raises(AssertionError):
        check_described(keep_all, asked)
