import json

import pytest

from pipelines.engines.settings import (
    EngineDevice,
    EngineOverrides,
    engine_arguments,
    engine_settings,
    kv_bytes_per_token,
)
from schemas.checkpoints import Checkpoint
from schemas.errors import SettingsError

SMOLLM2 = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "head_dim": 64,
}
SMOLLM2_TOKEN_BYTES = 23_040


@pytest.fixture
def checkpoint_of(tmp_path):
    def made(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return Checkpoint(
            path=str(tmp_path),
            model_id="m",
            model_revision=None,
            weights="int8",
            quantization="W8A8",
            files=(),
            weights_hash="h",
        )

    return made


def cpu(**fields):
    return EngineDevice(
        **{
            "kind": "cpu",
            "name": "a CPU",
            "cpu_ids": (0, 1),
            "free_memory_bytes": 20 * 10**9,
            **fields,
        }
    )


def test_a_cpu_is_given_room_for_all_sequences_of_1024_tokens_and_not_for_the_whole_context(
    checkpoint_of,
):
    settings = engine_settings(cpu(), checkpoint_of(SMOLLM2), max_model_len=8192)

    assert settings.kv_cache_bytes == 64 * 1024 * SMOLLM2_TOKEN_BYTES


def test_short_sequences_are_given_no_more_than_they_can_use(checkpoint_of):
    settings = engine_settings(cpu(), checkpoint_of(SMOLLM2), max_model_len=100)

    # 100 tokens are 4 blocks of 32, and one block is kept back.
    assert settings.kv_cache_bytes == 64 * 160 * SMOLLM2_TOKEN_BYTES


def test_one_sequence_of_full_length_always_fits(checkpoint_of):
    overrides = EngineOverrides(max_num_seqs=1)

    settings = engine_settings(
        cpu(), checkpoint_of(SMOLLM2), max_model_len=8192, overrides=overrides
    )

    assert settings.kv_cache_bytes == (8192 + 32) * SMOLLM2_TOKEN_BYTES


def test_the_kv_cache_takes_at_most_35_percent_of_free_memory(checkpoint_of):
    device = cpu(free_memory_bytes=2 * 10**9)

    settings = engine_settings(device, checkpoint_of(SMOLLM2), max_model_len=2048)

    assert settings.kv_cache_bytes == 700_000_000


def test_a_machine_too_small_for_one_sequence_is_refused_with_both_numbers(checkpoint_of):
    device = cpu(free_memory_bytes=100_000_000)

    with pytest.raises(SettingsError, match=r"one sequence takes 0\.2 GB, 0\.0 GB"):
        engine_settings(device, checkpoint_of(SMOLLM2), max_model_len=8192)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SMOLLM2, SMOLLM2_TOKEN_BYTES),
        (
            {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64},
            2 * 2 * 4 * 16 * 2,
        ),
        ({**SMOLLM2, "kv_lora_rank": 512}, None),
        ({"model_type": "unheard of"}, None),
    ],
    ids=["grouped heads", "all heads", "latent attention", "unknown"],
)
def test_the_kv_bytes_of_a_token_follow_from_the_models_shape(config, expected):
    assert kv_bytes_per_token(config, value_bytes=2) == expected


def test_a_cpu_without_bf16_instructions_computes_in_fp32(checkpoint_of):
    zen3 = cpu(flags=("avx2",))

    settings = engine_settings(zen3, checkpoint_of(SMOLLM2), max_model_len=512)

    assert settings.dtype == "float32"
    assert settings.kv_cache_bytes == 64 * 544 * SMOLLM2_TOKEN_BYTES * 2


@pytest.mark.parametrize("flags", [("avx2", "avx512_bf16"), ("amx_bf16",), ("bf16",), None])
def test_any_other_cpu_keeps_the_models_own_type(checkpoint_of, flags):
    settings = engine_settings(cpu(flags=flags), checkpoint_of(SMOLLM2), max_model_len=512)

    assert settings.dtype == "auto"


def test_a_gpu_is_left_to_vllm_but_for_what_the_job_says(checkpoint_of):
    device = cpu(kind="cuda", num_devices=2)
    checkpoint = checkpoint_of(SMOLLM2)
    overrides = EngineOverrides(max_num_seqs=256)

    settings = engine_settings(device, checkpoint, max_model_len=4096, overrides=overrides)
    arguments = engine_arguments(checkpoint, settings)

    assert arguments["max_num_seqs"] == 256
    assert arguments["tensor_parallel_size"] == 2
    assert not arguments["enforce_eager"]
    assert {"max_num_batched_tokens", "block_size", "kv_cache_memory_bytes"}.isdisjoint(arguments)


def test_the_job_can_override_every_number(checkpoint_of):
    overrides = EngineOverrides(
        max_num_seqs=3, max_num_batched_tokens=99, block_size=64, kv_cache_bytes=7, is_eager=False
    )
    checkpoint = checkpoint_of(SMOLLM2)

    settings = engine_settings(cpu(), checkpoint, max_model_len=512, overrides=overrides)
    arguments = engine_arguments(checkpoint, settings)

    assert arguments["max_num_seqs"] == 3
    assert arguments["max_num_batched_tokens"] == 99
    assert arguments["block_size"] == 64
    assert arguments["kv_cache_memory_bytes"] == 7
    assert not arguments["enforce_eager"]


def test_a_step_has_room_for_one_token_of_every_sequence(checkpoint_of):
    overrides = EngineOverrides(max_num_seqs=2048)

    settings = engine_settings(
        cpu(), checkpoint_of(SMOLLM2), max_model_len=512, overrides=overrides
    )

    assert settings.max_num_batched_tokens == 2048


def test_no_code_of_the_model_folder_is_run_and_no_pickle_is_read(checkpoint_of):
    checkpoint = checkpoint_of(SMOLLM2)

    arguments = engine_arguments(checkpoint, engine_settings(cpu(), checkpoint, max_model_len=512))

    assert arguments["trust_remote_code"] is False
    assert arguments["enable_prompt_embeds"] is False
    assert arguments["load_format"] == "safetensors"


def test_a_folder_without_a_config_is_refused(checkpoint_of, tmp_path):
    checkpoint = checkpoint_of(SMOLLM2)
    (tmp_path / "config.json").unlink()

    with pytest.raises(SettingsError, match=r"config\.json: cannot be read"):
        engine_settings(cpu(), checkpoint, max_model_len=512)
