"""Settings, devices and models for tests of how an engine is started."""

import json
from pathlib import Path
from typing import Any, Literal

from pipelines.engines.settings import Chosen, EngineDevice, EngineSettings
from schemas.checkpoints import Checkpoint, ModelFile
from schemas.workloads import Workload

SMOLLM2 = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "head_dim": 64,
}
SMOLLM2_TOKEN_BYTES = 23_040
LLAMA_8B = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "head_dim": 128,
}


def some_settings(
    kind: Literal["cpu", "cuda"] = "cpu", flags: tuple[str, ...] | None = None
) -> EngineSettings:
    """Settings that nobody looks at."""
    device = EngineDevice(
        kind=kind, name="a device", cpu_ids=(0, 2, 3), free_memory_bytes=10**9, flags=flags
    )
    why = "for a test"
    return EngineSettings(
        device=device,
        max_model_len=Chosen(value=512, reason=why),
        max_num_seqs=Chosen(value=8, reason=why),
        max_num_batched_tokens=Chosen(value=512, reason=why),
        block_size=Chosen(value=32, reason=why),
        kv_cache_bytes=Chosen(value=10**8, reason=why),
        kv_cache_dtype=Chosen(value="auto", reason=why),
        dtype=Chosen(value="auto", reason=why),
        compile=Chosen(value=False, reason=why),
    )


def cpu(**fields: Any) -> EngineDevice:
    """A CPU with 20 GB free."""
    of_a_cpu = {"kind": "cpu", "name": "a CPU", "cpu_ids": (0, 1), "free_memory_bytes": 20 * 10**9}
    return EngineDevice(**{**of_a_cpu, **fields})


def model_folder(
    folder: Path, config: dict[str, Any], *, weight_bytes: int = 163_000_000
) -> Checkpoint:
    """An INT8 checkpoint of this shape; its weights are a size and nothing else."""
    (folder / "config.json").write_text(json.dumps(config))
    return Checkpoint(
        path=str(folder),
        model_id="m",
        model_revision=None,
        weights="int8",
        quantization="W8A8",
        files=(ModelFile(name="model.safetensors", num_bytes=weight_bytes, sha256="0"),),
        weights_hash="h",
    )


def workload(**fields: Any) -> Workload:
    """Ten thousand requests of 113 + 38 tokens."""
    usual = {
        "num_requests": 10_000,
        "mean_prompt_tokens": 113.0,
        "mean_uncached_tokens": 113.0,
        "mean_output_tokens": 38.0,
        "heaviest_mean_tokens": 300.0,
        "longest_tokens": 455,
    }
    return Workload(**{**usual, **fields})
