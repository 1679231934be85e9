"""What of a model's files decides how an engine is set up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.checkpoints import Checkpoint
from schemas.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """What of a model decides the balance.

    `kv_values_per_token` are numbers in the KV cache per token, None for a shape unknown here.
    """

    num_weights: float
    weight_bytes: int
    is_int8: bool
    kv_values_per_token: int | None


def model_size(checkpoint: Checkpoint) -> ModelSize:
    """Return what decides the balance; sizes of files stand for the number of weights.

    Raises:
        SettingsError: config.json is not there or not JSON.
    """
    config = _model_config(checkpoint)
    weight_bytes = sum(f.num_bytes for f in checkpoint.files if f.name.endswith(".safetensors"))
    bytes_per_weight = {"W8A8": 1.0, "W4A16": 0.5}.get(checkpoint.quantization or "", 2.0)
    return ModelSize(
        num_weights=max(1.0, weight_bytes / bytes_per_weight),
        weight_bytes=weight_bytes,
        is_int8=checkpoint.quantization == "W8A8",
        kv_values_per_token=kv_values_per_token(config),
    )


def kv_values_per_token(config: Mapping[str, Any]) -> int | None:
    """Return the numbers that one token takes in the KV cache; None for a shape unknown here.

    2 (keys and values) x layers x key-value heads x head size. Latent attention and
    state-space layers keep other things than keys and values.
    """
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    layers = config.get("num_hidden_layers")
    if not (isinstance(heads, int) and isinstance(hidden, int) and isinstance(layers, int)):
        return None
    if "kv_lora_rank" in config or "layer_types" in config:
        return None
    kv_heads = config.get("num_key_value_heads") or heads
    head_size = config.get("head_dim") or hidden // heads
    return 2 * layers * kv_heads * head_size


def _model_config(checkpoint: Checkpoint) -> dict[str, Any]:
    path = Path(checkpoint.path) / "config.json"
    try:
        config: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise SettingsError(f"{path}: holds no JSON object")
    return config
