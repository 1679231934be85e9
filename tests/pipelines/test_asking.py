import pytest

from pipelines.asking import row_sampling
from pipelines.questions import asking_of
from schemas.errors import SettingsError
from schemas.prompts import Fault
from schemas.requests import Answer, SamplingSettings


def answer(chat, text: str, **fields) -> Answer:
    fields = {"finish_reason": "stop", **fields}
    return Answer(number=1, token_ids=tuple(chat.encode_answer(text)), **fields)


def test_a_text_ends_before_the_stop_string_that_ended_it(chat, make_job):
    asking = asking_of(make_job(sampling={"stop": "END"}), chat)

    (meaning,) = asking.meanings([(answer(chat, "a bug END of it", stop_reason="END"),)], [(3,)])
    assert (meaning.text, meaning.stop_reason) == ("a bug ", "END")


@pytest.mark.parametrize(
    ("text", "finish_reason", "message"),
    [
        ('{"a": 1}', "stop", None),
        ('{"a": 1', "length", "cut short at max_tokens"),
        ('{"a": "x"}', "stop", "fails the schema at $.a: type"),
        ("sure! {}", "stop", "not JSON"),
    ],
)
def test_json_is_validated_and_never_repaired(text, finish_reason, message, chat, make_job):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asking = asking_of(make_job(output={"json_schema": schema}), chat)

    (meaning,) = asking.meanings([(answer(chat, text, finish_reason=finish_reason),)], [(3,)])
    assert meaning.text == text
    assert (meaning.fault is None) == (message is None)
    if isinstance(meaning.fault, Fault):
        assert meaning.fault.code == "INVALID_OUTPUT"
        assert message in meaning.fault.message


def test_a_json_schema_that_is_none_is_refused(chat, make_job):
    with pytest.raises(SettingsError, match="is no JSON schema"):
        asking_of(make_job(output={"json_schema": {"type": "objekt"}}), chat)


def test_a_rows_own_settings_stand_in_for_the_jobs():
    job = SamplingSettings(max_tokens=8, temperature=0.5, top_p=0.9)

    assert row_sampling(job, None, None, None) is job
    assert row_sampling(job, 3, None, 7) == SamplingSettings(
        max_tokens=3, temperature=0.5, top_p=0.9, seed=7
    )
