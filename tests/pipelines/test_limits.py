import math
import time

import pytest

from pipelines.accounting import Spent
from pipelines.attempt_log import read_attempts
from pipelines.engines import EchoEngine
from pipelines.limits import Budget, Gate
from pipelines.pace import Pace
from pipelines.plan_parts import written_plan
from pipelines.run import run
from pipelines.storage import open_store
from schemas.errors import StoppedByLimitError
from schemas.forecasts import Forecast
from schemas.plans import PlannedBatch

USD_PER_HOUR = 3600.0
"""A second costs a dollar, so that limits read as seconds."""
TOKENS_PER_S = 2e4


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


def budget(**limits) -> Budget:
    return Budget(started_s=100.0, usd_per_device_hour=USD_PER_HOUR, **limits)


def gate(limits: Budget, *, load_s: float = 0.0) -> Gate:
    """Guards a run of 1,000 tokens that are expected to take 10 s, at instant 100."""
    expected = Forecast(basis="", seconds=10.0 + load_s, load_s=load_s, output_tokens=500)
    return Gate(limits, Pace.of([batch(500, 500)], expected), load_s, Spent())


# ------------------------------------------------------------------------ what is left


def test_without_limits_there_is_always_time_left():
    assert budget().left_s(Spent(), now_s=1e9) == math.inf


def test_a_deadline_counts_from_when_the_run_was_asked_for():
    assert budget(deadline_s=30.0).left_s(Spent(), now_s=110.0) == 20.0


def test_money_is_used_from_the_first_engines_start_on_by_every_device():
    spent = Spent(started_s=104.0, num_devices=2)

    assert budget(max_usd=20.0).left_s(Spent(), now_s=110.0) == 20.0
    assert budget(max_usd=20.0).left_s(spent, now_s=110.0) == 4.0


def test_money_that_earlier_attempts_spent_is_gone():
    assert budget(max_usd=20.0, earlier_usd=15.0).left_s(Spent(), now_s=100.0) == 5.0


def test_a_device_that_costs_nothing_never_reaches_a_budget():
    free = Budget(started_s=0.0, usd_per_device_hour=0.0, max_usd=1.0)

    assert free.left_s(Spent(started_s=0.0), now_s=1e9) == math.inf


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_usd": 4.0}, "5 USD, limits.max_usd is 4"),
        ({"max_usd": 6.0, "earlier_usd": 2.0}, "7 USD, limits.max_usd is 6"),
        ({"deadline_s": 6.0}, "7 s, limits.deadline is 6 s"),
        ({"max_usd": 6.0, "deadline_s": 9.0}, None),
    ],
)
def test_a_forecast_whose_low_end_passes_a_limit_is_warned_of(limits, said):
    forecast = Forecast(basis="", seconds=6.0, low_s=5.0, low_usd=5.0)

    warning = budget(**limits).warned(forecast, now_s=102.0).warning

    assert (warning or "").startswith(f"at least {said}" if said else "")
    assert (warning is None) == (said is None)


# ----------------------------------------------------------------- what may still begin


def test_a_batch_begins_only_if_it_and_what_is_in_the_engine_end_in_time():
    fifty_tokens_and_no_more = gate(budget(deadline_s=0.6))

    assert fifty_tokens_and_no_more.may_begin(batch(25, 25), 100.0)
    fifty_tokens_and_no_more.begun(batch(25, 25))
    assert not fifty_tokens_and_no_more.may_begin(batch(25, 25), 100.0)


def test_the_load_that_is_expected_counts_before_the_first_batch():
    assert gate(budget(max_usd=9.0), load_s=8.0).may_begin(batch(25, 25), 100.0)
    assert not gate(budget(max_usd=9.0), load_s=8.8).may_begin(batch(25, 25), 100.0)


def test_where_no_pace_is_known_a_batch_may_begin_until_the_limit_is_there():
    unknown = Gate(budget(deadline_s=5.0), Pace.of([batch(9, 9)], None), None, Spent())

    assert unknown.may_begin(batch(9, 9), 104.0)
    assert not unknown.may_begin(batch(9, 9), 105.0)


# ------------------------------------------------------------------------- whole runs


@pytest.fixture
def slow_run(write_input, make_job, make_tools):
    """Runs 400 rows at 20,000 tokens/s, which takes about 1.2 s in 30 batches."""
    texts = [f"ticket {n} about billing and shipping" for n in range(400)]
    write_input({"id": [str(n) for n in range(400)], "text": texts})

    def opened(load_s):
        def open_engine(need):
            time.sleep(load_s)
            return EchoEngine(
                max_model_len=need.context_length, max_num_seqs=8, tokens_per_s=TOKENS_PER_S
            )

        return open_engine

    def ran(*, load_s=0.0, limit=None, **limits):
        job = make_job(
            output={"max_batch_tokens": 800},
            price={"usd_per_device_hour": USD_PER_HOUR},
            limits=limits,
        )
        return run(job, make_tools(open_engine=opened(load_s)), limit=limit)

    return ran


def ends(tmp_path):
    """The bills of the one run of 400 rows."""
    for path in (tmp_path / "out").iterdir():
        plan = written_plan(open_store(str(path)))
        if plan is not None and plan.num_rows == 400:
            return read_attempts(open_store(str(path))).ends
    raise AssertionError(tmp_path)


def test_a_limit_ends_a_run_before_it_is_passed_and_keeps_every_batch_that_was_begun(
    slow_run, tmp_path
):
    slow_run(limit=100)

    with pytest.raises(StoppedByLimitError, match=r"batches \(.* rows\) are committed") as stop:
        slow_run(max_usd=0.6)

    (end,) = ends(tmp_path)
    assert "no further batch would be finished" in str(stop.value)
    assert "; 0 of" not in str(stop.value)
    assert end.wasted_s == 0
    assert 0 < end.usd <= 0.6


def test_a_deadline_that_planning_used_up_starts_no_engine(slow_run, tmp_path):
    with pytest.raises(StoppedByLimitError, match=r"limits.deadline: 0 of 0 s have passed"):
        slow_run(deadline="0.001s")

    (end,) = ends(tmp_path)
    assert end.usd == 0


def test_the_money_of_all_attempts_counts_and_a_higher_limit_does_the_rest(slow_run, tmp_path):
    slow_run(limit=100)
    for _ in range(2):
        with pytest.raises(StoppedByLimitError, match="for all attempts"):
            slow_run(max_usd=0.6)
    assert sum(end.usd for end in ends(tmp_path)) <= 0.6

    report = slow_run(max_usd=5.0)

    assert report.num_generations == 400
    assert report.num_reused_batches > 0


def test_without_any_forecast_a_run_stops_while_there_is_time_to_end_the_engine(slow_run, tmp_path):
    with pytest.raises(StoppedByLimitError, match=r"limits.max_usd: 0\.[0-9]+ of 0\.4 USD"):
        slow_run(max_usd=0.4)

    (end,) = ends(tmp_path)
    assert 0 < end.usd <= 0.4


def test_an_engine_that_cannot_be_loaded_in_time_is_not_started(slow_run, tmp_path):
    slow_run(limit=100, load_s=0.3)

    with pytest.raises(StoppedByLimitError, match=r"0 of .* rows\) are committed"):
        slow_run(load_s=0.3, max_usd=0.25)

    (end,) = ends(tmp_path)
    assert (end.usd, end.load_s) == (0, 0)
