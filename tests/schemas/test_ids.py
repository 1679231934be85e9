import pytest

from schemas.ids import batch_id, content_id, part_key, position_key, request_digest, request_id


def test_the_id_of_the_same_fields_never_changes():
    assert content_id("run1", {"b": [1, None, 2.5], "a": "ä"}) == (
        "run1-5c329f912f47d3cb673b0dfdbf56ed3d43bbfb7717c6eeafe2bf553fdcf768a4"
    )


def test_the_id_of_the_same_request_never_changes():
    digest = request_digest("pf1-x", b"", b"\x01\x00\x00\x00")

    assert request_id(digest) == (
        "rq1-725af65fbf55a9ccd507ba836d510b27f5df5e90ce7683870ce8b13ec6f9e998"
    )


def test_key_order_does_not_count():
    assert content_id("s", {"a": 1, "b": 2}) == content_id("s", {"b": 2, "a": 1})


def test_where_one_value_ends_and_the_next_begins_counts():
    assert request_digest("p", b"ab", b"c") != request_digest("p", b"a", b"bc")
    assert content_id("s", {"x": ["ab", "c"]}) != content_id("s", {"x": ["a", "bc"]})


def test_a_value_without_a_json_form_has_no_id():
    with pytest.raises(TypeError):
        content_id("s", {"a": b"bytes"})
    with pytest.raises(ValueError, match="JSON compliant"):
        content_id("s", {"a": float("nan")})


def test_ids_are_file_names_that_sort_as_batches_do():
    names = [batch_id(number) for number in (0, 9, 10, 123456)]

    assert names == sorted(names)
    assert part_key("generations", batch_id(3), 2, "ab" * 32) == (
        "generations/b0000003-0002-abababababab.parquet"
    )
    assert position_key("a/b.parquet", 7) == "a/b.parquet#7"
