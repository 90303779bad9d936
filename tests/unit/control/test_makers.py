"""What the makers promise: a misspelt field of an answer does not pass for one that was dropped."""

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.quorum.control.acls import APIS
from kraftpy.wire.apis import CREATE_ACLS, NO_THROTTLE
from tests.unit.control.makers import answers


def test_a_misspelt_name_is_seen_at_any_depth() -> None:
    result = {"error_code": ErrorCode.none, "error_message": None}
    good = {"throttle_time": NO_THROTTLE, "results": [result]}
    assert sorted(answers(CREATE_ACLS, APIS[CREATE_ACLS], good)) == [1, 2, 3]
    for planted in (
        {**good, "result": []},
        {**good, "results": [{**result, "eror_code": ErrorCode.none}]},
    ):
        with pytest.raises(AssertionError, match="no version has"):
            answers(CREATE_ACLS, APIS[CREATE_ACLS], planted)
