"""Which access control entries a filter finds, held against a matcher that tries every case."""

import random
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.describe.acls import AclFilter, describe_acls
from kraftpy.metadata_log.image import Acl
from kraftpy.metadata_log.records import AccessControlEntryRecord
from kraftpy.types import Uuid
from kraftpy.wire.apis import DESCRIBE_ACLS
from tests.unit.control.makers import image_of, request

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
NAMES = ["*", "a", "ab", "abc", "b"]

acls = st.builds(
    AccessControlEntryRecord,
    id=st.binary(min_size=16, max_size=16).map(Uuid),
    resource_type=st.sampled_from([2, 3]),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:a", "User:*"]),
    host=st.sampled_from(["*", "h"]),
    operation=st.sampled_from([2, 3]),
    permission_type=st.sampled_from([2, 3]),
)
filters = st.builds(
    AclFilter,
    resource_type=st.sampled_from([ANY, 2, 3]),
    resource_name=st.sampled_from([None, *NAMES]),
    pattern_type=st.sampled_from([ANY, MATCH, LITERAL, PREFIXED]),
    principal=st.sampled_from([None, "User:a", "User:*"]),
    host=st.sampled_from([None, "*", "h"]),
    operation=st.sampled_from([ANY, 2, 3]),
    permission_type=st.sampled_from([ANY, 2, 3]),
)


def naive_matches(wanted: AclFilter, acl: Acl) -> bool:
    """Part by part, with the pattern read as the resources that it stands for."""
    if wanted.resource_type != ANY and wanted.resource_type != acl.resource_type:
        return False
    if wanted.principal is not None and wanted.principal != acl.principal:
        return False
    if wanted.host is not None and wanted.host != acl.host:
        return False
    if wanted.operation != ANY and wanted.operation != acl.operation:
        return False
    if wanted.permission_type != ANY and wanted.permission_type != acl.permission_type:
        return False
    return naive_pattern(wanted, acl)


def naive_pattern(wanted: AclFilter, acl: Acl) -> bool:
    names = NAMES if wanted.resource_name is None else [wanted.resource_name]
    if wanted.pattern_type == ANY:
        return acl.resource_name in names
    if wanted.pattern_type != MATCH:
        return acl.pattern_type == wanted.pattern_type and acl.resource_name in names
    if acl.pattern_type == LITERAL:
        return any(acl.resource_name in ("*", name) for name in names)
    return any(name[: len(acl.resource_name)] == acl.resource_name for name in names)


@given(filters, acls)
def test_a_filter_matches_what_a_naive_matcher_says(wanted: AclFilter, acl: Acl) -> None:
    assert wanted.matches(acl) == naive_matches(wanted, acl)


class Forgetful(AclFilter):
    """Does not know that the wildcard stands for every name."""

    def _matches_pattern(self, acl: Acl) -> bool:
        return acl.resource_name != "*" and super()._matches_pattern(acl)


def test_a_planted_matcher_without_wildcards_is_seen() -> None:
    found = find(
        st.tuples(filters, acls),
        lambda each: Forgetful(*each[0]).matches(each[1]) != naive_matches(*each),
        settings=settings(database=None, max_examples=1000),
        random=random.Random(0),
    )
    assert found[1].resource_name == "*"


def filter_values(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


@given(filters, st.lists(acls, max_size=12, unique_by=lambda acl: acl.id))
def test_a_description_holds_what_matches_and_nothing_else(
    wanted: AclFilter, there: list[Acl]
) -> None:
    message = request(DESCRIBE_ACLS, 3, **filter_values(wanted))
    answer = describe_acls(image_of(*there), message)
    described = [
        (
            resource["resource_type"],
            resource["resource_name"],
            resource["pattern_type"],
            *acl.values(),
        )
        for resource in answer["resources"]
        for acl in resource["acls"]
    ]
    expected = [
        (
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in there
        if naive_matches(wanted, acl)
    ]
    assert described == sorted(expected)


@pytest.mark.parametrize(
    ("pattern_type", "name", "found"),
    [
        (LITERAL, "ab", {"literal ab"}),
        (LITERAL, "*", {"literal *"}),
        (PREFIXED, "ab", {"prefix ab"}),
        (PREFIXED, None, {"prefix a", "prefix ab"}),
        (MATCH, "abc", {"literal *", "prefix a", "prefix ab"}),
        (MATCH, "ab", {"literal *", "literal ab", "prefix a", "prefix ab"}),
        (MATCH, "b", {"literal *"}),
        (ANY, "ab", {"literal ab", "prefix ab"}),
    ],
)
def test_how_patterns_match(pattern_type: int, name: str | None, found: set[str]) -> None:
    there = [(LITERAL, "*"), (LITERAL, "ab"), (PREFIXED, "a"), (PREFIXED, "ab")]
    records = [
        AccessControlEntryRecord(
            id=Uuid(bytes([number]) * 16),
            resource_type=2,
            resource_name=resource_name,
            pattern_type=kind,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number, (kind, resource_name) in enumerate(there)
    ]
    wanted = AclFilter(ANY, name, pattern_type, None, None, ANY, ANY)
    message = request(DESCRIBE_ACLS, 3, **filter_values(wanted))
    answer = describe_acls(image_of(*records), message)
    words = {LITERAL: "literal", PREFIXED: "prefix"}
    assert answer["error_code"] is ErrorCode.none
    assert {
        f"{words[each['pattern_type']]} {each['resource_name']}" for each in answer["resources"]
    } == found
