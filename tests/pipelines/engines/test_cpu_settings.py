import pytest

from pipelines.engines.basis import JOB_FILE, Evidence
from pipelines.engines.choosing import engine_settings
from pipelines.engines.settings import engine_arguments
from schemas.engine_overrides import EngineOverrides
from schemas.errors import SettingsError
from tests.pipelines.engines.chosen_settings import (
    SMOLLM2,
    SMOLLM2_TOKEN_BYTES,
    cpu,
    model_folder,
    workload,
)


@pytest.fixture
def checkpoint(tmp_path):
    return model_folder(tmp_path, SMOLLM2)


@pytest.fixture
def chosen(checkpoint):
    """Chooses for a context of 8,192 tokens."""

    def settings(device=None, *, work=None, max_model_len=8192, **overrides):
        return engine_settings(
            device or cpu(),
            checkpoint,
            max_model_len=max_model_len,
            overrides=EngineOverrides(**overrides),
            evidence=Evidence(workload=work),
        )

    return settings


def test_without_a_plan_a_cpu_has_room_for_64_sequences_of_1024_tokens(chosen):
    settings = chosen()

    # 1,024 tokens are 32 blocks, and one block is kept back.
    assert settings.max_num_seqs.value == 64
    assert settings.kv_cache_bytes.value == 64 * 1056 * SMOLLM2_TOKEN_BYTES
    assert settings.max_model_len.value == 8192


def test_the_plans_longest_request_bounds_the_context_and_the_cache(chosen):
    work = workload(longest_tokens=700, heaviest_mean_tokens=600.0)

    settings = chosen(work=work, max_num_seqs=64)

    assert settings.max_model_len.value == 1024
    assert "700 tokens" in settings.max_model_len.reason
    # 700 tokens are 22 blocks, and one block is kept back.
    assert settings.kv_cache_bytes.value == 64 * 23 * 32 * SMOLLM2_TOKEN_BYTES


def test_the_cache_is_no_larger_than_all_requests_together(chosen):
    few = workload(num_requests=200, heaviest_mean_tokens=400.0)

    # 200 requests of 151 tokens and a block; in FP32 each token takes twice the bytes.
    settings = chosen(cpu(flags=("avx2",)), work=few)

    assert settings.kv_cache_bytes.value == 200 * (151 + 32) * SMOLLM2_TOKEN_BYTES * 2
    assert "all 200 requests" in settings.kv_cache_bytes.reason


def test_a_small_job_still_leaves_room_for_beginnings_that_are_shared(chosen):
    assert chosen(work=workload(num_requests=3)).kv_cache_bytes.value == 500_000_000


def test_the_context_is_never_more_than_the_models_own(chosen):
    settings = chosen(work=workload(longest_tokens=700), max_model_len=800)

    assert settings.max_model_len.value == 800


@pytest.mark.parametrize(
    ("output", "uncached", "expected"),
    [(38.0, 113.0, 128), (16.0, 113.0, 64), (1.0, 200.0, 32), (500.0, 20.0, 128)],
    ids=["in balance", "short answers", "one token", "long answers"],
)
def test_as_many_sequences_run_as_keep_a_step_of_512_tokens_full(
    chosen, output, uncached, expected
):
    work = workload(mean_output_tokens=output, mean_uncached_tokens=uncached)

    settings = chosen(work=work)

    assert settings.max_num_seqs.value == expected
    assert "512 tokens a step x" in settings.max_num_seqs.reason


def test_one_sequence_of_full_length_always_fits(chosen):
    work = workload(longest_tokens=30_000)

    settings = chosen(work=work, max_num_seqs=1, max_model_len=32_768)

    assert settings.kv_cache_bytes.value == (32_768 + 32) * SMOLLM2_TOKEN_BYTES


def test_the_kv_cache_takes_at_most_35_percent_of_free_memory(chosen):
    settings = chosen(cpu(free_memory_bytes=2 * 10**9), max_model_len=2048)

    assert settings.kv_cache_bytes.value == 700_000_000
    assert "35% of free memory" in settings.kv_cache_bytes.reason


def test_a_machine_too_small_for_one_sequence_is_refused_with_both_numbers(chosen):
    with pytest.raises(SettingsError, match=r"one sequence takes 0\.2 GB, 0\.0 GB"):
        chosen(cpu(free_memory_bytes=100_000_000))


def test_a_cpu_without_bf16_instructions_computes_in_fp32_and_keeps_keys_and_values_so(chosen):
    settings = chosen(cpu(flags=("avx2",)), max_model_len=512)

    assert settings.dtype.value == "float32"
    assert settings.kv_cache_bytes.value == 64 * 544 * SMOLLM2_TOKEN_BYTES * 2


@pytest.mark.parametrize("flags", [("avx2", "avx512_bf16"), ("amx_bf16",), ("bf16",), None])
def test_any_other_cpu_keeps_the_models_own_type(chosen, flags):
    assert chosen(cpu(flags=flags)).dtype.value == "auto"


def test_the_job_file_wins_and_is_named_as_the_reason(chosen, checkpoint):
    settings = chosen(
        max_num_seqs=3,
        max_num_batched_tokens=99,
        block_size=64,
        kv_cache_gb=0.5,
        kv_cache_dtype="fp8",
        compile=True,
    )
    arguments = engine_arguments(checkpoint, settings)

    expected = {
        "max_num_seqs": 3,
        "max_num_batched_tokens": 99,
        "block_size": 64,
        "kv_cache_memory_bytes": 500_000_000,
        "kv_cache_dtype": "fp8",
        "enforce_eager": False,
    }
    assert {name: arguments[name] for name in expected} == expected
    reasons = [one.reason for one in settings.chosen().values()]
    assert reasons.count(JOB_FILE) == len(expected)


def test_a_step_has_room_for_one_token_of_every_sequence(chosen):
    settings = chosen(max_num_seqs=2048)

    assert settings.max_num_batched_tokens.value == 2048
    assert "2,048 sequences" in settings.max_num_batched_tokens.reason


def test_every_setting_says_why(chosen):
    for name, one in chosen(work=workload()).chosen().items():
        assert len(one.reason) > 10, name


def test_no_code_of_the_model_folder_is_run_and_no_pickle_is_read(chosen, checkpoint):
    arguments = engine_arguments(checkpoint, chosen())

    assert arguments["trust_remote_code"] is False
    assert arguments["enable_prompt_embeds"] is False
    assert arguments["load_format"] == "safetensors"


def test_a_folder_without_a_config_is_refused(chosen, tmp_path):
    (tmp_path / "config.json").unlink()

    with pytest.raises(SettingsError, match=r"config\.json: cannot be read"):
        chosen()
