import pytest

from pipelines.json_answers import JsonShape
from schemas.errors import SettingsError

SHAPE = JsonShape({"type": "object", "properties": {"kind": {"enum": [1, "a"]}}}, where="it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": 1, "kind": "a"}', "an object has a key twice"),
        ('{"kind": NaN}', "JSON has no NaN"),
        ('{"kind": -Infinity}', "JSON has no -Infinity"),
        ('{"kind": "1"}', "fails the schema at $.kind: enum"),
        ("[" * 100_000, "not JSON"),
        ("", "not JSON"),
    ],
)
def test_an_answer_that_readers_of_json_could_take_differently_is_refused(text, message):
    fault = SHAPE.fault(text, "stop")

    assert (fault.code, fault.message) == ("INVALID_OUTPUT", message)


@pytest.mark.parametrize("text", ['{"kind": 1}', '{"kind": "a"}', "{}"])
def test_an_answer_of_the_schemas_shape_is_accepted_whatever_the_types_of_its_choices(text):
    assert SHAPE.fault(text, "stop") is None


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "https://example.com/schema.json"}, "nothing is fetched"),
        ({"$ref": "#/$defs/absent"}, "which is not in it"),
        ({"type": "objekt"}, "is no JSON schema"),
        ({"const": float("nan")}, "what JSON does not have"),
        ({"enum": ["x" * 70_000]}, "an engine takes up to"),
    ],
)
def test_a_schema_that_cannot_be_asked_for_is_refused_before_the_run(schema, message):
    with pytest.raises(SettingsError, match=message):
        JsonShape(schema, where="output.json_schema")


def test_a_schema_may_refer_to_its_own_parts():
    shape = JsonShape({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, where="it")

    assert (shape.fault("3", "stop"), shape.fault('"3"', "stop").code) == (None, "INVALID_OUTPUT")
