"""Which quotas a filter finds: exact, default and any names, strict or not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.describe.quotas import describe_client_quotas
from kraftpy.metadata_log.records import ClientQuotaRecord, QuotaEntity
from kraftpy.wire.apis import DESCRIBE_CLIENT_QUOTAS
from tests.unit.control.makers import image_of, request

EXACT, DEFAULT, ANY = 0, 1, 2
Names = dict[str, str | None]
NAMES: list[str | None] = [None, "a", "b"]
ENTITIES: list[Names] = [
    *({"client-id": client} for client in NAMES),
    *({"client-id": client, "user": user} for client in NAMES for user in NAMES),
    *({"ip": ip} for ip in (None, "10.0.0.1")),
    *({"user": user} for user in NAMES),
]


def quota(entity: Names) -> ClientQuotaRecord:
    parts = (QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.items())
    return ClientQuotaRecord(entity=tuple(parts), key="request_percentage", value=1.5)


IMAGE = image_of(*(quota(entity) for entity in reversed(ENTITIES)))


def component(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def describe(*components: dict[str, Any], strict: bool = False) -> dict[str, Any]:
    message = request(DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=strict)
    return describe_client_quotas(IMAGE, message)


def found(*components: dict[str, Any], strict: bool = False) -> list[Names]:
    answer = describe(*components, strict=strict)
    assert answer["error_code"] is ErrorCode.none
    return [
        {part["entity_type"]: part["entity_name"] for part in entry["entity"]}
        for entry in answer["entries"]
    ]


def test_no_filter_finds_everything_in_one_order() -> None:
    assert found() == sorted(
        ENTITIES, key=lambda entity: [(kind, name or "") for kind, name in entity.items()]
    )


def test_a_strict_filter_without_components_finds_nothing() -> None:
    assert found(strict=True) == []


def test_an_exact_name_is_found_with_and_without_other_types() -> None:
    alice = component("user", EXACT, "a")
    assert found(alice, strict=True) == [{"user": "a"}]
    assert len(found(alice)) == 4


def test_the_default_is_the_entity_without_a_name() -> None:
    assert found(component("user", DEFAULT), strict=True) == [{"user": None}]


def test_any_name_includes_the_default() -> None:
    assert found(component("ip", ANY), strict=True) == [{"ip": None}, {"ip": "10.0.0.1"}]


def test_values_come_with_their_keys() -> None:
    (entry,) = describe(component("ip", DEFAULT))["entries"]
    assert entry["values"] == [{"key": "request_percentage", "value": 1.5}]


@pytest.mark.parametrize(
    ("components", "error_code"),
    [
        ([component("", ANY)], ErrorCode.invalid_request),
        ([component("group", ANY)], ErrorCode.unsupported_version),
        ([component("user", ANY), component("user", ANY)], ErrorCode.invalid_request),
        ([component("user", 3)], ErrorCode.invalid_request),
        ([component("user", -1)], ErrorCode.invalid_request),
        ([component("user", EXACT)], ErrorCode.invalid_request),
        ([component("user", DEFAULT, "a")], ErrorCode.invalid_request),
        ([component("user", ANY, "a")], ErrorCode.invalid_request),
        ([component("ip", ANY), component("user", ANY)], ErrorCode.invalid_request),
        ([component("client-id", ANY), component("ip", DEFAULT)], ErrorCode.invalid_request),
    ],
)
def test_filters_that_are_refused(components: list[dict[str, Any]], error_code: ErrorCode) -> None:
    answer = describe(*components)
    assert answer["error_code"] is error_code
    assert answer["error_message"]
    assert answer["entries"] is None


matches = st.sampled_from([(EXACT, "a"), (EXACT, "b"), (EXACT, "c"), (DEFAULT, None), (ANY, None)])
filters = st.one_of(
    st.dictionaries(st.sampled_from(["user", "client-id"]), matches),
    st.dictionaries(st.just("ip"), matches),
)


def fits(asked: dict[str, tuple[int, str | None]], strict: bool, entity: Names) -> bool:
    """The filter, read plainly: for each type a list of the names that it allows."""
    if strict and set(entity) != set(asked):
        return False
    every = {"user": NAMES, "client-id": NAMES, "ip": [None, "10.0.0.1"]}
    for kind, (match_type, match) in asked.items():
        allowed = every[kind] if match_type == ANY else [match]
        if kind not in entity or entity[kind] not in allowed:
            return False
    return True


def check_found(
    asked: dict[str, tuple[int, str | None]], strict: bool, answer: list[Names]
) -> None:
    assert answer == [entity for entity in found() if fits(asked, strict, entity)]


@given(filters, st.booleans())
def test_a_filter_finds_what_a_plain_reading_of_it_does(
    asked: dict[str, tuple[int, str | None]], strict: bool
) -> None:
    components = [component(kind, *match) for kind, match in asked.items()]
    check_found(asked, strict, found(*components, strict=strict))


def test_a_planted_filter_that_is_never_strict_is_seen() -> None:
    asked: dict[str, tuple[int, str | None]] = {"user": (EXACT, "a")}
    loose = found(component("user", EXACT, "a"), strict=False)
    check_found(asked, False, loose)
    with pytest.raises(AssertionError):
        check_found(asked, True, loose)
