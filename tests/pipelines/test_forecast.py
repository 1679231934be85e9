from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.bill import bill_of
from pipelines.devices import Device
from pipelines.forecast import SIZE_FACTOR, by_history, by_size, history_of
from pipelines.outline import outline
from pipelines.plan_parts import written_plan
from pipelines.storage import open_store
from schemas.checkpoints import ModelFile
from schemas.plans import PlannedBatch
from tests.pipelines.echo_runs import EchoRunner, run_store

CPU = Device(
    kind="cpu",
    name="a CPU",
    num_devices=1,
    num_cores=2,
    memory_bytes=2**34,
    compute_capability=None,
    flags=("avx512_vnni",),
)


@pytest.fixture
def echo(checkpoint):
    return EchoRunner(checkpoint, tokens_per_s=1e5)


@pytest.fixture
def report(echo, write_input, make_job):
    write_input({"id": [str(n) for n in range(40)], "text": [f"ticket {n}" for n in range(40)]})
    return echo(make_job(output={"max_batch_tokens": 400}))


@pytest.fixture
def history(report, checkpoint):
    output = open_store(str(Path(report.run_uri).parent))
    found = history_of([output], weights_hash=checkpoint.weights_hash, engine="echo")
    assert found is not None
    return found


def batch(prompt: int, output: int) -> PlannedBatch:
    return PlannedBatch(
        batch_id="b0000000",
        part=0,
        row_group=0,
        num_rows=10,
        num_requests=10,
        num_shared=0,
        num_rejects=0,
        num_prompt_tokens=prompt,
        predicted_output_tokens=output,
        max_output_tokens=output,
    )


def test_a_history_counts_the_tokens_and_device_seconds_of_the_current_run(report, history):
    bill = bill_of(run_store(report))

    tokens = report.num_prompt_tokens + report.num_output_tokens
    assert history.num_batches == report.num_batches > 1
    assert history.tokens_per_device_s == pytest.approx(tokens / bill.device_s.batches)


def test_other_weights_or_another_engine_have_no_history(report):
    output = open_store(str(Path(report.run_uri).parent))

    assert history_of([output], weights_hash="other", engine="echo") is None
    assert history_of([output], weights_hash="weights-tiny", engine="vllm") is None


def test_an_output_that_does_not_exist_has_no_history(tmp_path):
    store = open_store(str(tmp_path / "nothing"))

    assert history_of([store], weights_hash="weights-tiny", engine="echo") is None


def test_a_damaged_earlier_run_counts_as_none(report):
    Path(report.run_uri, "manifest.json").write_bytes(b"{}")

    output = open_store(str(Path(report.run_uri).parent))
    assert history_of([output], weights_hash="weights-tiny", engine="echo") is None


def test_a_forecast_by_history_is_load_and_tokens_over_the_rate_that_was_reached(history):
    known = replace(
        history,
        tokens_per_device_s=100.0,
        low_tokens_per_device_s=50.0,
        high_tokens_per_device_s=200.0,
        output_fraction=0.5,
        idle_fraction=0.0,
        load_s=7.0,
    )

    found = by_history([batch(600, 800)], known, usd_per_device_hour=3600.0)

    assert found.output_tokens == 400
    assert (found.seconds, found.low_s, found.high_s) == (17.0, 12.0, 27.0)
    assert found.usd == 17.0


def test_a_forecast_by_size_grows_with_weights_and_tokens_and_says_how_wide_it_is(checkpoint):
    weights = ModelFile(name="model.safetensors", num_bytes=10**9, sha256="0" * 64)
    model = replace(checkpoint, files=(weights,), quantization="W8A8")

    one = by_size([batch(10**6, 10**5)], model, CPU, 3.0)
    ten = by_size([batch(10**6, 10**5)] * 10, model, CPU, 3.0)

    assert one.seconds is not None
    assert ten.seconds is not None
    assert one.seconds < ten.seconds
    assert one.high_s == pytest.approx(one.seconds * SIZE_FACTOR)
    assert "1,000 M weights on a CPU" in one.basis


def test_a_gpu_that_is_not_known_has_no_forecast_and_a_reason(checkpoint):
    unknown = replace(CPU, kind="cuda", name="NVIDIA Unheard-of 9000", compute_capability=(8, 0))

    found = by_size([batch(10, 10)], checkpoint, unknown, 3.0)

    assert found.seconds is None
    assert found.usd is None
    assert "the speed of NVIDIA Unheard-of 9000 is not known" in found.basis


def test_an_outline_counts_what_a_plan_holds(echo, write_input, make_job):
    texts = ["a bug"] * 3 + ["word " * 300, None, "a much longer ticket about billing" * 2]
    write_input({"id": [str(n) for n in range(6)], "text": texts})
    store = run_store(echo(make_job()))
    plan = written_plan(store)
    assert plan is not None

    found = outline(store, plan)

    assert (found.num_rows, found.num_requests, found.num_shared) == (6, 2, 2)
    assert found.rejects_by_code == {"NULL_PROMPT": 1, "PROMPT_TOO_LONG": 1}
    assert [key for key, _ in found.too_long] == ["3"]
    assert sum(bar.num_requests for bar in found.histogram) == 2


def test_the_outline_of_a_plan_without_rows_is_all_zeros(echo, write_input, make_job):
    none = pa.array([], pa.string())
    write_input({"id": none, "text": none})
    store = run_store(echo(make_job()))
    plan = written_plan(store)
    assert plan is not None

    found = outline(store, plan)

    assert (found.num_rows, found.num_requests, found.histogram) == (0, 0, ())
    assert (found.median_prompt_tokens, found.max_prompt_tokens) == (None, None)
