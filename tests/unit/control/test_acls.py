"""Access control entries: what may be created, that nothing is there twice, and what is deleted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.describe.acls import content_of
from kraftpy.metadata_log import ClusterImage
from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from kraftpy.quorum.control.acls import APIS
from kraftpy.quorum.control.decision import Decision
from kraftpy.types import Uuid, random_uuid
from kraftpy.wire.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from tests.unit.control.makers import answers, ask, image_of, request, situation

TOPIC, GROUP, CLUSTER, USER = 2, 3, 4, 7
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, DENY, ALLOW = 3, 2, 3
VERSIONS = [1, 2, 3]


def creation(**changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return known | changed


def acl_filter(**changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return known | changed


def create(
    image: ClusterImage, *creations: dict[str, Any], version: int = 3, seed: int = 0
) -> tuple[Decision, list[ErrorCode]]:
    decision, answer = ask(
        APIS, situation(image, seed=seed), CREATE_ACLS, version, creations=creations
    )
    return decision, [each.error_code for each in answer.results]


def delete(image: ClusterImage, *filters: dict[str, Any], version: int = 3) -> tuple[Decision, Any]:
    decision, answer = ask(APIS, situation(image), DELETE_ACLS, version, filters=filters)
    return decision, answer.filter_results


def with_acls(*creations: dict[str, Any]) -> ClusterImage:
    decision, _ = create(image_of(), *creations)
    return replay_all(image_of(), decision.records)


# -- create -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_an_entry_is_created_with_an_id_from_the_situation(version: int) -> None:
    decision, codes = create(image_of(), creation(), version=version, seed=7)
    assert codes == [ErrorCode.none]
    assert decision.records == [
        AccessControlEntryRecord(
            id=random_uuid(situation(seed=7).rng),
            resource_type=TOPIC,
            resource_name="orders",
            pattern_type=LITERAL,
            principal="User:alice",
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )
    ]


def test_an_entry_that_is_there_is_created_without_a_record() -> None:
    image = with_acls(creation())
    decision, codes = create(image, creation(), creation(host="h"), creation(host="h"), seed=1)
    assert codes == [ErrorCode.none] * 3
    assert [record.host for record in decision.records] == ["h"]  # type: ignore[union-attr]


def test_an_id_in_use_is_not_used_again() -> None:
    image = with_acls(creation())  # With seed 0, as what follows.
    decision, _ = create(image, creation(host="h"), creation(host="i"))
    after = replay_all(image, decision.records)
    assert len(after.acls) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type": 0},
        {"resource_type": ANY},
        {"resource_type": 8},
        {"resource_pattern_type": 0},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": 5},
        {"operation": 0},
        {"operation": ANY},
        {"operation": 16},
        {"permission_type": 0},
        {"permission_type": ANY},
        {"permission_type": 4},
        {"resource_name": ""},
        {"resource_type": CLUSTER},
        {"resource_type": CLUSTER, "resource_name": ""},
        {"principal": "alice"},
        {"principal": ""},
        {"host": "10.0.0.0/33"},
        {"host": "name/8"},
    ],
)
def test_entries_that_are_refused(changed: dict[str, Any]) -> None:
    decision, codes = create(image_of(), creation(**changed), creation())
    assert codes == [ErrorCode.invalid_request, ErrorCode.none]
    assert len(decision.records) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type": CLUSTER, "resource_name": "kafka-cluster"},
        {"resource_type": USER, "resource_name": "User:bob"},
        {"resource_name": "*"},
        {"resource_pattern_type": PREFIXED},
        {"operation": 2},
        {"operation": 15},
        {"permission_type": DENY},
        {"principal": "User:*"},
        {"host": "10.0.0.0/8"},
        {"host": "10.1.2.3/8"},
        {"host": "2001:db8::/32"},
        {"host": "some.host"},
    ],
)
def test_entries_that_are_taken(changed: dict[str, Any]) -> None:
    decision, codes = create(image_of(), creation(**changed))
    assert (codes, len(decision.records)) == ([ErrorCode.none], 1)


# -- delete -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_filter_matches_is_deleted_and_told(version: int) -> None:
    image = with_acls(creation(), creation(resource_name="other"))
    decision, (result,) = delete(image, acl_filter(resource_name_filter="orders"), version=version)
    (told,) = result.matching_acls
    assert (told.resource_name, told.principal, told.pattern_type) == (
        "orders",
        "User:alice",
        LITERAL,
    )
    left = replay_all(image, decision.records).acls.values()
    assert [acl.resource_name for acl in left] == ["other"]


def test_an_entry_is_deleted_once_but_told_to_every_filter() -> None:
    image = with_acls(creation())
    decision, results = delete(image, acl_filter(), acl_filter(host_filter="*"))
    assert len(decision.records) == 1
    assert [len(result.matching_acls) for result in results] == [1, 1]


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type_filter": 0},
        {"resource_type_filter": 8},
        {"pattern_type_filter": 0},
        {"pattern_type_filter": 5},
        {"operation": 0},
        {"operation": 16},
        {"permission_type": 0},
        {"permission_type": 4},
    ],
)
def test_filters_that_are_refused(changed: dict[str, Any]) -> None:
    image = with_acls(creation())
    decision, results = delete(image, acl_filter(**changed), acl_filter(host_filter="h"))
    assert [each.error_code for each in results] == [ErrorCode.invalid_request, ErrorCode.none]
    assert not decision.records
    _, answer = ask(APIS, situation(image), DESCRIBE_ACLS, 3, **acl_filter(**changed))
    assert answer.error_code is ErrorCode.invalid_request


def test_refusals_for_all_are_answered() -> None:
    asked: dict[int, tuple[str, dict[str, Any]]] = {
        CREATE_ACLS: ("results", {"creations": [creation(), creation()]}),
        DELETE_ACLS: ("filter_results", {"filters": [acl_filter(), acl_filter()]}),
        DESCRIBE_ACLS: ("", acl_filter()),
    }
    for api_key, (field, values) in asked.items():
        api = APIS[api_key]
        message = request(api_key, 2, **values)
        found = answers(api_key, api, api.refuse(message, ErrorCode.not_controller, "not here"))
        assert sorted(found) == VERSIONS
        for answer in found.values():
            carriers = getattr(answer, field) if field else [answer] * 2
            assert [each.error_code for each in carriers] == [ErrorCode.not_controller] * 2


# -- any sequence -----------------------------------------------------------------------------

creations = st.builds(
    lambda name, host, operation: creation(resource_name=name, host=host, operation=operation),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["*", "h"]),
    st.sampled_from([3, 4]),
)
filters = st.builds(
    lambda name, host: acl_filter(resource_name_filter=name, host_filter=host),
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([None, "*", "h"]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.lists(creations, max_size=4)),
        st.tuples(st.just("delete"), st.lists(filters, max_size=2)),
    ),
    max_size=8,
)


def any_matches(asked: list[dict[str, Any]], acl: AccessControlEntryRecord) -> bool:
    return any(
        each["resource_name_filter"] in (None, acl.resource_name)
        and each["host_filter"] in (None, acl.host)
        for each in asked
    )


def no_entry_is_there_twice(image: ClusterImage) -> None:
    contents = [content_of(acl) for acl in image.acls.values()]
    assert len(set(contents)) == len(contents)


@given(steps)
def test_no_two_entries_say_the_same_and_deletion_is_complete(
    asked: list[tuple[str, list[dict[str, Any]]]],
) -> None:
    image = image_of()
    for seed, (kind, items) in enumerate(asked):
        if kind == "create":
            decision, _ = create(image, *items, seed=seed)
        else:
            decision, _ = delete(image, *items)
            assert all(isinstance(r, RemoveAccessControlEntryRecord) for r in decision.records)
            kept = {uuid for uuid, acl in image.acls.items() if not any_matches(items, acl)}
            assert set(replay_all(image, decision.records).acls) == kept
        image = replay_all(image, decision.records)
        no_entry_is_there_twice(image)


def test_a_planted_second_entry_is_seen() -> None:
    decision, _ = create(image_of(), creation())
    (entry,) = decision.records
    assert isinstance(entry, AccessControlEntryRecord)
    planted = image_of(entry, *create(image_of(), creation(), seed=1)[0].records)
    with pytest.raises(AssertionError):
        no_entry_is_there_twice(planted)
    assert Uuid(entry.id) in planted.acls
