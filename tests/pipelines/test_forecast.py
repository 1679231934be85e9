import math
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.bill import bill_of
from pipelines.devices import Device
from pipelines.forecast import SIZE_FACTOR, by_history, by_size, forecast_of, spread
from pipelines.history import EarlierRun, History, history_of
from pipelines.outline import outline
from pipelines.plan_parts import written_plan
from pipelines.step_costs import StepAdder
from pipelines.storage import open_store
from schemas.checkpoints import ModelFile
from schemas.plans import PlannedBatch
from tests.pipelines.echo_runs import EchoRunner, run_store
from tests.pipelines.simulated_steps import steps_of

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
def history(report):
    found = earlier(report)
    assert found is not None
    return found


def earlier(report, **others):
    output = open_store(str(Path(report.run_uri).parent))
    return history_of([output], **{"weights_hash": "weights-tiny", "engine": "echo", **others})


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


def plan_of(report) -> list[PlannedBatch]:
    plan = written_plan(run_store(report))
    assert plan is not None
    return list(plan.batches)


def test_a_history_has_the_batches_and_every_step_of_the_last_runs(report, history):
    bill = bill_of(run_store(report))

    (run,) = history.runs
    assert len(run.batches) == report.num_batches > 1
    assert run.busy_s == pytest.approx(bill.device_s.batches)
    assert history.sums.row(0)[2] == report.num_output_tokens


def test_other_weights_or_another_engine_have_no_history(report):
    assert earlier(report, weights_hash="other") is None
    assert earlier(report, engine="vllm") is None


def test_an_output_that_does_not_exist_has_no_history(tmp_path):
    store = open_store(str(tmp_path / "nothing"))

    assert history_of([store], weights_hash="weights-tiny", engine="echo") is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lineage.parquet", b"PAR1"),
        ("attempts/0001-end.json", b"{}"),
        ("../current/000001.json", b""),
    ],
)
def test_a_damaged_earlier_run_fails_no_forecast(report, checkpoint, name, content):
    Path(report.run_uri, name).write_bytes(content)

    output = open_store(str(Path(report.run_uri).parent))
    found = forecast_of(
        plan_of(report), [output], checkpoint, engine="echo", usd_per_device_hour=3.0
    )
    assert found.seconds is None or found.seconds > 0


def test_the_same_work_again_is_forecast_to_take_what_it_took(report, history):
    found = by_history(plan_of(report), history, usd_per_device_hour=3600.0)

    assert found.is_from_history
    assert found.output_tokens == report.num_output_tokens
    assert found.seconds == pytest.approx(report.held_s, rel=0.01)
    assert found.usd == found.seconds
    assert found.low_s < found.seconds < found.high_s


def test_half_of_the_work_takes_half_of_the_time_that_is_not_load(report, history):
    batches = plan_of(report)

    whole = by_history(batches, history, 3.0)
    double = by_history(batches * 2, history, 3.0)

    assert double.busy_s == pytest.approx(2 * whole.busy_s, rel=0.2)
    assert double.load_s == whole.load_s


def test_a_stopped_run_is_a_history_for_its_own_rest(report, checkpoint):
    Path(report.run_uri, "manifest.json").unlink()
    shutil.rmtree(Path(report.run_uri).parent / "current")

    assert earlier(report) is None
    found = earlier(report, run=run_store(report))
    assert found is not None
    assert len(found.runs[0].batches) == report.num_batches


# ------------------------------------------------------------------------ another mix


def simulated(history, requests) -> History:
    """The history of one run of these requests, at the costs of the simulation."""
    steps, adder = steps_of(requests), StepAdder()
    for step in steps:
        adder.add(step)
    run = history.runs[0]
    lineage = replace(
        run.batches[0],
        num_requests=len(requests),
        num_prompt_tokens=sum(prompt for prompt, _ in requests),
        num_cached_tokens=0,
        num_output_tokens=sum(output for _, output in requests),
        predicted_output_tokens=sum(output for _, output in requests),
        device_s=sum(step.duration_s for step in steps),
    )
    end = replace(run.ends[0], load_s=0.0, tail_idle_s=0.0, idle_s=0.0, step_sums=adder.sums())
    return History(runs=(EarlierRun(batches=(lineage,), ends=(end,)),))


def lengths(num: int, prompt: int, output: int) -> list[tuple[int, int]]:
    numbers = random.Random(prompt)
    spread = [(numbers.uniform(0.5, 1.5), numbers.uniform(0.5, 1.5)) for _ in range(num)]
    return [(round(prompt * one), max(1, round(output * two))) for one, two in spread]


@pytest.mark.parametrize(
    "other", [lengths(600, 100, 40), lengths(300, 600, 20), lengths(300, 60, 120)]
)
def test_another_mix_of_prompts_and_answers_is_forecast_within_15_percent(history, other):
    earlier_run = simulated(history, lengths(400, 150, 40))
    pending = replace(
        batch(sum(prompt for prompt, _ in other), sum(output for _, output in other)),
        num_requests=len(other),
    )
    truth = sum(step.duration_s for step in steps_of(other))

    found = by_history([pending], earlier_run, 3.0)

    assert found.seconds == pytest.approx(truth, rel=0.15)


# -------------------------------------------------------------------------- intervals


@pytest.mark.parametrize("num_runs", [1, 2, 5])
@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_nine_of_ten_outcomes_lie_in_the_interval(num_runs, noise):
    numbers = random.Random(num_runs)
    hits = 0
    for _ in range(1000):
        ratios = [math.exp(numbers.gauss(0.0, noise)) for _ in range(num_runs)]
        middle, width = spread(ratios, num_requests=10_000)
        hits += middle / width <= math.exp(numbers.gauss(0.0, noise)) <= middle * width

    assert hits / 1000 >= 0.87


def test_runs_that_differ_widen_the_interval_and_runs_that_agree_narrow_it():
    _, one = spread([1.0], num_requests=10_000)
    _, agree = spread([1.0] * 8, num_requests=10_000)
    _, differ = spread([0.5, 1.0, 2.0], num_requests=10_000)
    _, few = spread([1.0], num_requests=4)

    assert agree < one < differ
    assert few > one
    assert 1.15 < one < 1.5


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
