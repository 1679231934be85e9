from dataclasses import replace

import pytest

from pipelines.engine_records import add_start, add_tuning, read_record, tuning_for
from schemas.engine_records import EngineKey, EngineRecord, EngineStart
from schemas.tunings import Trial, Tuning
from schemas.workloads import Workload

KEY = EngineKey(weights_hash="w", device_name="a CPU", num_devices=1, engine_version="0.32.0")
TUNING = Tuning(
    version=1,
    job_name="tickets",
    weights_hash="w",
    device_name="a CPU",
    num_devices=1,
    engine_version="0.32.0",
    tuned_at="2026-12-01T00:00:00+00:00",
    num_requests=64,
    mean_prompt_tokens=90.0,
    mean_output_tokens=10.0,
    trials=(
        Trial(
            max_num_seqs=32,
            max_num_batched_tokens=512,
            is_compiled=False,
            tokens_per_s=100.0,
            load_s=3.0,
            num_steps=10,
            num_preemptions=0,
        ),
    ),
)


def start(load_s: float) -> EngineStart:
    return EngineStart(graph="g", is_compiled=False, was_kept=False, load_s=load_s)


def workload(prompt: float, output: float) -> Workload:
    return Workload(
        num_requests=10,
        mean_prompt_tokens=prompt,
        mean_uncached_tokens=prompt,
        mean_output_tokens=output,
        heaviest_mean_tokens=prompt + output,
        longest_tokens=None,
    )


def test_what_was_added_is_read_again_and_holds_for_this_engine_alone(tmp_path):
    add_start(tmp_path, KEY, start(1.0))
    add_start(tmp_path, KEY, start(2.0))
    add_tuning(tmp_path, KEY, TUNING)

    found = read_record(tmp_path, KEY)

    assert [one.load_s for one in found.starts] == [1.0, 2.0]
    assert found.tunings == (TUNING,)
    other = replace(KEY, weights_hash="other")
    assert read_record(tmp_path, other) == EngineRecord(key=other)


def test_the_last_32_starts_are_kept(tmp_path):
    for number in range(40):
        add_start(tmp_path, KEY, start(float(number)))

    assert [one.load_s for one in read_record(tmp_path, KEY).starts] == list(range(8, 40))


def test_a_job_tuned_again_has_its_last_tuning_only(tmp_path):
    add_tuning(tmp_path, KEY, TUNING)
    add_tuning(tmp_path, KEY, replace(TUNING, num_requests=7))

    assert [one.num_requests for one in read_record(tmp_path, KEY).tunings] == [7]


def test_a_damaged_record_counts_as_none(tmp_path):
    path = add_tuning(tmp_path, KEY, TUNING)
    path.write_bytes(path.read_bytes()[:-20])

    assert read_record(tmp_path, KEY) == EngineRecord(key=KEY)


@pytest.mark.parametrize(
    ("job_name", "lengths", "expected"),
    [
        ("tickets", (10.0, 90.0), TUNING),
        ("other", (85.0, 15.0), TUNING),
        ("other", (50.0, 50.0), None),
        ("other", None, None),
    ],
    ids=["its own", "similar lengths", "other lengths", "unknown lengths"],
)
def test_a_tuning_holds_for_its_own_job_and_for_similar_lengths(job_name, lengths, expected):
    record = EngineRecord(key=KEY, tunings=(TUNING,))
    work = None if lengths is None else workload(*lengths)

    assert tuning_for(record, job_name, work) == expected
