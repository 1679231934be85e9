import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.accounting import Spent
from pipelines.meter import Meter, Tail
from pipelines.roofline import step_limit_s
from schemas.device_limits import DeviceLimits
from schemas.model_shape import ModelShape, Roofline
from schemas.requests import EngineFacts, StepStats, StepWork

ROOFLINE = Roofline(
    shape=ModelShape(
        num_linear_params=10**6,
        num_layers=4,
        num_q_heads=8,
        num_kv_heads=2,
        head_dim=16,
        hidden_size=128,
        vocab_size=1000,
        weight_bytes=1.0,
        value_bytes=2,
        kv_value_bytes=2,
        is_int8=True,
    ),
    limits=DeviceLimits(int8_ops_per_s=1e10, float_ops_per_s=5e9, bytes_per_s=1e8, source="a test"),
)


@st.composite
def works(draw) -> StepWork:
    """What a group may do in a step: some prompts, some single tokens, or nothing but wait."""
    prompts = draw(st.integers(0, 600))
    decodes = draw(st.integers(0, 64))
    context = draw(st.integers(0, 100_000))
    forward = prompts + decodes
    return StepWork(
        group=draw(st.integers(0, 5)),
        num_prefill_tokens=prompts,
        num_decode_tokens=decodes,
        num_context_tokens=context,
        num_forward_tokens=forward,
        num_query_key_pairs=forward * context + forward * (forward + 1) // 2,
        num_preemptions=draw(st.integers(0, 2)),
    )


STEPS = st.lists(
    st.tuples(
        st.lists(works(), max_size=6, unique_by=lambda work: work.group),
        st.floats(1e-6, 10.0),  # duration
        st.floats(0.0, 1.0),  # pause before
        st.none() | st.floats(0.0, 1000.0),  # energy
    ),
    max_size=30,
)


def steps_of(drawn, began_s: float = 0.0) -> list[StepStats]:
    made, now_s = [], began_s
    for work, duration_s, pause_s, energy_j in drawn:
        now_s += pause_s
        made.append(
            StepStats(
                started_s=now_s,
                duration_s=duration_s,
                num_running=len(work),
                num_waiting=0,
                kv_usage_fraction=0.5,
                num_preemptions=sum(one.num_preemptions for one in work),
                work=tuple(work),
                energy_j=energy_j,
            )
        )
        now_s += duration_s
    return made


@pytest.mark.parametrize("roofline", [None, ROOFLINE], ids=["by tokens", "by roofline"])
@given(drawn=STEPS, num_devices=st.integers(1, 8))
def test_what_batches_pay_is_what_steps_took_times_devices(roofline, drawn, num_devices):
    meter = Meter(num_devices=num_devices, roofline=roofline)
    steps = steps_of(drawn)
    counted = [step for step in steps if meter.add(step)]

    paid = math.fsum(use.device_s for use in meter.uses.values())
    assert paid == pytest.approx(math.fsum(s.duration_s for s in counted) * num_devices, abs=1e-6)
    assert paid == pytest.approx(meter.busy_s * num_devices, abs=1e-6)
    assert meter.all.device_s == pytest.approx(paid, abs=1e-6)


@given(drawn=STEPS)
def test_limits_energy_and_preemptions_of_batches_are_those_of_the_steps(drawn):
    meter = Meter(roofline=ROOFLINE)
    steps = steps_of(drawn)
    counted = [step for step in steps if meter.add(step)]
    uses = meter.uses.values()

    limits = math.fsum(step_limit_s(step.work, ROOFLINE)[0] for step in counted)
    assert math.fsum(use.limit_s or 0.0 for use in uses) == pytest.approx(limits, abs=1e-6)
    energy = math.fsum(step.energy_j or 0.0 for step in counted)
    assert math.fsum(use.energy_j or 0.0 for use in uses) == pytest.approx(energy, abs=1e-6)
    assert sum(use.num_preemptions for use in uses) == sum(s.num_preemptions for s in steps)


@given(
    drawn=STEPS,
    load_s=st.floats(0.0, 60.0),
    end_s=st.floats(0.0, 5.0),
    dry_after=st.none() | st.integers(0, 30),
)
def test_load_steps_idle_and_tail_idle_make_the_wall(drawn, load_s, end_s, dry_after):
    spent, steps = Spent(), steps_of(drawn, began_s=100.0 + load_s)
    spent.start(100.0)
    spent.load_s = load_s
    for number, step in enumerate(steps):
        if number == dry_after:
            spent.tail.note(step.started_s, is_dry=True)
        spent.add(step)
    last_s = steps[-1].started_s + steps[-1].duration_s if steps else 100.0 + load_s
    spent.wall_s = last_s + end_s - 100.0

    parts = spent.load_s + spent.meter.busy_s + spent.idle_s + spent.tail_idle_s
    assert parts == pytest.approx(spent.wall_s, abs=1e-6)
    assert min(spent.idle_s, spent.tail_idle_s) >= -1e-6


def test_a_step_that_began_before_the_tail_is_in_it_from_there_on():
    tail = Tail()
    tail.note(10.0, is_dry=True)
    (step,) = steps_of([([], 4.0, 0.0, None)], began_s=8.0)
    tail.add(step)

    assert tail.idle_s(15.0) == 3.0


def test_a_tail_in_which_requests_go_in_again_was_none():
    tail = Tail()
    tail.note(10.0, is_dry=True)
    tail.note(12.0, is_dry=False)
    tail.note(20.0, is_dry=True)

    assert tail.idle_s(21.0) == 1.0


def test_without_a_roofline_the_limit_is_none_and_not_zero():
    meter = Meter()
    meter.add(
        steps_of(
            [
                (
                    [
                        StepWork(
                            group=0, num_prefill_tokens=3, num_decode_tokens=1, num_context_tokens=0
                        )
                    ],
                    1.0,
                    0.0,
                    None,
                )
            ]
        )[0]
    )

    use = meter.use(0)
    assert (use.limit_s, use.bound_by, use.energy_j) == (None, None, None)


def test_the_fraction_of_the_limit_counts_idle_and_leaves_load_out():
    spent = Spent()
    spent.start(0.0)
    spent.ready(
        EngineFacts(
            engine="echo",
            engine_version="1",
            device_name="none",
            num_devices=2,
            max_model_len=10,
            max_num_seqs=1,
            kv_capacity_tokens=None,
            load_s=0.0,
            memory_bytes=None,
            roofline=ROOFLINE,
        )
    )
    spent.meter.all.limit_s = 3.0
    spent.load_s, spent.wall_s = 10.0, 14.0

    assert spent.fraction_of_limit == 3.0 / (4.0 * 2)
