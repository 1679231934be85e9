import pytest

from pipelines.engines.basis import Evidence
from pipelines.engines.choosing import engine_settings
from pipelines.engines.settings import EngineDevice, engine_arguments
from schemas.device_limits import DeviceLimits
from schemas.engine_overrides import EngineOverrides
from tests.pipelines.engines.chosen_settings import LLAMA_8B, SMOLLM2, model_folder, workload

T, G = 1e12, 1e9
GPUS = {  # dense, by the makers' datasheets; memory in bytes, compute capability
    "H100": (1979 * T, 989 * T, 3350 * G, 80 * 2**30, (9, 0)),
    "A100": (624 * T, 312 * T, 2039 * G, 80 * 2**30, (8, 0)),
    "L4": (242 * T, 121 * T, 300 * G, 24 * 2**30, (8, 9)),
}
EIGHT_BILLION = 8_030_000_000
SUMMARIES = workload(
    mean_prompt_tokens=900.0,
    mean_uncached_tokens=800.0,
    mean_output_tokens=100.0,
    heaviest_mean_tokens=2000.0,
    longest_tokens=4000,
)
LONG_DOCUMENTS = workload(
    mean_prompt_tokens=8000.0,
    mean_uncached_tokens=8000.0,
    mean_output_tokens=1000.0,
    heaviest_mean_tokens=12_000.0,
    longest_tokens=16_000,
)


@pytest.fixture
def chosen(tmp_path):
    def settings(name, work=SUMMARIES, *, num_devices=1, is_known=True, **overrides):
        int8, bf16, bytes_per_s, memory, capability = GPUS[name]
        device = EngineDevice(
            kind="cuda",
            name=f"NVIDIA {name}",
            cpu_ids=(0,),
            free_memory_bytes=memory,
            num_devices=num_devices,
            compute_capability=capability,
        )
        limits = DeviceLimits(
            int8_ops_per_s=int8, float_ops_per_s=bf16, bytes_per_s=bytes_per_s, source="datasheet"
        )
        return engine_settings(
            device,
            model_folder(tmp_path, LLAMA_8B, weight_bytes=EIGHT_BILLION),
            max_model_len=131_072,
            overrides=EngineOverrides(**overrides),
            evidence=Evidence(workload=work, limits=limits if is_known else None),
        )

    return settings


@pytest.mark.parametrize(("name", "expected"), [("H100", 8192), ("A100", 4096), ("L4", 8192)])
def test_a_step_is_so_long_that_reading_the_weights_is_a_sixteenth_of_it(chosen, name, expected):
    found = chosen(name).max_num_batched_tokens

    # Ridges: 295, 153 and 403 tokens.
    assert found.value == expected
    assert "datasheet" in found.reason


def test_sequences_are_in_balance_where_memory_holds_them(chosen):
    settings = chosen("A100")

    # 4,096 x 100 / 900 = 455; 67 GB of KV cache would hold half of them in BF16.
    assert settings.max_num_seqs.value == pytest.approx(455 * 0.5, rel=0.1)
    assert settings.kv_cache_dtype.value == "auto"
    assert chosen("A100", workload()).max_num_seqs.value == 1024


def test_where_memory_holds_less_than_half_of_the_balance_keys_and_values_are_fp8(chosen):
    settings = chosen("H100", LONG_DOCUMENTS)

    # In balance 910; of 12,000 tokens at 131,072 bytes 35 fit, in FP8 70.
    assert settings.kv_cache_dtype.value == "fp8"
    assert "FP8 holds twice as many" in settings.kv_cache_dtype.reason
    assert 60 <= settings.max_num_seqs.value <= 80
    assert "fit into the KV cache" in settings.max_num_seqs.reason


def test_a_gpu_that_does_not_compute_in_fp8_keeps_the_models_own_type(chosen):
    settings = chosen("A100", LONG_DOCUMENTS)

    assert settings.kv_cache_dtype.value == "auto"
    assert 30 <= settings.max_num_seqs.value <= 40


def test_two_gpus_hold_more_sequences_than_one(chosen):
    one = chosen("L4", LONG_DOCUMENTS).max_num_seqs.value
    two = chosen("L4", LONG_DOCUMENTS, num_devices=2).max_num_seqs.value

    assert two > 2 * one


def test_a_gpu_of_unknown_speed_still_gets_a_step_and_sequences(chosen):
    settings = chosen("L4", None, is_known=False)

    assert (settings.max_num_batched_tokens.value, settings.max_num_seqs.value) == (8192, 256)


def test_memory_blocks_and_scheduling_are_left_to_vllm_on_a_gpu(chosen, tmp_path):
    settings = chosen("H100", num_devices=2)
    arguments = engine_arguments(model_folder(tmp_path, SMOLLM2), settings)

    left_out = {"block_size", "kv_cache_memory_bytes", "async_scheduling"}
    assert left_out.isdisjoint(arguments)
    assert arguments["tensor_parallel_size"] == 2
    assert not arguments["enforce_eager"]


def test_the_job_files_step_decides_the_balance_too(chosen):
    settings = chosen("A100", workload(), max_num_batched_tokens=256)

    # 256 x 38 / 151
    assert settings.max_num_seqs.value == 64
