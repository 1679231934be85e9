from dataclasses import replace

import pytest

from pipelines.engines.basis import Evidence
from pipelines.engines.choosing import engine_settings
from pipelines.engines.compiling import KEPT_EXTRA_S, compile_choice, compile_effect
from pipelines.engines.settings import EngineDevice
from schemas.engine_records import EngineStart
from schemas.tunings import Trial, Tuning
from tests.pipelines.engines.chosen_settings import SMOLLM2, cpu, model_folder, workload

ZEN5 = cpu(flags=("avx2", "avx512f", "avx512_vnni", "avx512_bf16"))
ZEN3 = cpu(flags=("avx2",))
GPU = EngineDevice(kind="cuda", name="a GPU", cpu_ids=(0,), free_memory_bytes=10**10)


def trial(*, is_compiled, tokens_per_s, load_s, **fields):
    usual = {
        "max_num_seqs": 48,
        "max_num_batched_tokens": 768,
        "num_steps": 9,
        "num_preemptions": 0,
    }
    made = {**usual, **fields}
    return Trial(is_compiled=is_compiled, tokens_per_s=tokens_per_s, load_s=load_s, **made)


def tuning(*trials):
    return Tuning(
        version=1,
        job_name="tickets",
        weights_hash="h",
        device_name="a CPU",
        num_devices=1,
        engine_version="0.32.0",
        tuned_at="2026-12-01T00:00:00+00:00",
        num_requests=256,
        mean_prompt_tokens=113.0,
        mean_output_tokens=38.0,
        trials=trials,
    )


def choice(device, forecast_s, tuned=None, starts=()):
    """What is chosen for a model whose graph is called `g`."""
    effect = compile_effect(device, tuned, starts, graph="g")
    return compile_choice(device, forecast_s, effect)


def start(graph="g", *, is_compiled=True, was_kept=False, load_s=100.0):
    return EngineStart(graph=graph, is_compiled=is_compiled, was_kept=was_kept, load_s=load_s)


@pytest.mark.parametrize(("forecast_s", "expected"), [(200.0, False), (300.0, True)])
def test_compiling_pays_on_avx512_after_four_minutes(forecast_s, expected):
    chosen = choice(ZEN5, forecast_s)

    # 45 s / (1 - 1 / 1.23) = 241 s
    assert chosen.value is expected
    assert f"{forecast_s:.0f} s of eager steps" in chosen.reason


def test_where_compiling_gains_nothing_it_is_not_done():
    no_faster = tuning(
        trial(is_compiled=False, tokens_per_s=400.0, load_s=5.0),
        trial(is_compiled=True, tokens_per_s=390.0, load_s=105.0),
    )

    assert not choice(ZEN3, 1e6, no_faster).value


def test_what_was_compiled_before_pays_after_seconds():
    before, other = start(), start("h")

    assert not choice(ZEN3, 120.0, starts=(other,)).value
    assert choice(ZEN3, 120.0, starts=(before,)).value
    assert f"{KEPT_EXTRA_S:.0f} s longer" in choice(ZEN3, 120.0, starts=(before,)).reason


def test_how_long_a_kept_model_takes_to_load_is_what_starts_have_shown():
    starts = (
        start(),
        start(was_kept=True, load_s=30.0),
        start("other", is_compiled=False, load_s=5.0),
    )

    assert not choice(ZEN3, 120.0, starts=starts).value
    assert choice(ZEN3, 200.0, starts=starts).value


def test_without_a_forecast_a_gpu_compiles_and_a_cpu_does_not():
    assert choice(GPU, None).value
    assert not choice(ZEN5, None).value


def test_what_was_tuned_here_counts_more_than_what_is_usual():
    slow_to_load = tuning(
        trial(is_compiled=False, tokens_per_s=400.0, load_s=5.0),
        trial(is_compiled=True, tokens_per_s=800.0, load_s=105.0),
    )

    assert not choice(ZEN3, 190.0, slow_to_load).value
    assert choice(ZEN3, 210.0, slow_to_load).value
    assert "tuned here on 2026-12-01" in choice(ZEN3, 210.0, slow_to_load).reason


def test_a_tuning_gives_sequences_and_tokens_of_the_mode_that_is_chosen(tmp_path):
    found = tuning(
        trial(is_compiled=False, tokens_per_s=400.0, load_s=5.0, max_num_seqs=24),
        trial(is_compiled=True, tokens_per_s=800.0, load_s=105.0, max_num_seqs=96),
        trial(is_compiled=False, tokens_per_s=300.0, load_s=5.0, max_num_seqs=12),
    )

    def settings(forecast_s):
        evidence = Evidence(workload=workload(), forecast_s=forecast_s, tuning=found)
        checkpoint = model_folder(tmp_path, SMOLLM2)
        return engine_settings(ZEN3, checkpoint, max_model_len=512, evidence=evidence)

    short, long = settings(10.0), settings(1000.0)
    assert (short.max_num_seqs.value, long.max_num_seqs.value) == (24, 96)
    assert (short.compile.value, long.compile.value) == (False, True)
    assert short.max_num_batched_tokens.value == 768
    assert "400 tokens/s eager, the best of 3" in short.max_num_seqs.reason


def test_a_tuning_that_could_not_fill_more_sequences_leaves_them_to_the_balance(tmp_path):
    few = replace(
        tuning(trial(is_compiled=False, tokens_per_s=400.0, load_s=5.0, max_num_seqs=32)),
        num_requests=40,
    )
    evidence = Evidence(workload=workload(), tuning=few)

    settings = engine_settings(
        ZEN3, model_folder(tmp_path, SMOLLM2), max_model_len=512, evidence=evidence
    )

    assert settings.max_num_seqs.value == 128
    assert settings.max_num_batched_tokens.value == 768
