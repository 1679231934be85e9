"""The shape of a checkpoint's model, from its config.json and the headers of its weight files."""

import json
import re
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from pipelines.models.folders import weight_files
from schemas.checkpoints import Checkpoint
from schemas.model_shape import ModelShape

_MAX_HEADER_BYTES: Final = 100 << 20
"""The limit of the safetensors format itself."""
_LAYER_WEIGHT = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.\d+\..+\.(weight|weight_packed)$")
_EMBEDS = re.compile(r"embed|wte|wpe|lm_head|norm|rotary")
_BITS_PER_PACKED: Final = 32
_OTHER_THAN_DENSE = (
    *("num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank", "state_size"),
    *("layers_block_type", "text_config", "vision_config", "linear_num_key_heads"),
)
"""Entries of a config.json of models whose work per token is another formula: experts, latent
attention, state spaces, several modalities."""


class _Config(BaseModel):
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    hidden_size: int
    head_dim: int | None = None
    vocab_size: int
    layer_types: list[str] = []


class _Tensor(BaseModel):
    dtype: str
    shape: list[int]


def model_shape(
    checkpoint: Checkpoint,
    *,
    value_bytes: int,
    kv_value_bytes: int | None = None,
    multiplies_int8: bool = True,
) -> ModelShape | None:
    """Return the model's shape; None for an architecture whose work is not known here.

    `value_bytes` is what the engine's float type takes: 2 for BF16, 4 for FP32, in which then
    unquantized weights are kept too; `kv_value_bytes` what the KV cache's takes, if that is
    another. Without `multiplies_int8` an engine unpacks INT8 weights to floats when it loads
    (docs/decisions/0016). The matrices are counted in the weight files, so it
    does not matter how a feed-forward part is built. Files that changed or cannot be read make
    it None: what is wrong with them is told by who loads them.
    """
    folder = Path(checkpoint.path)
    try:
        config: object = json.loads((folder / "config.json").read_text("utf-8"))
        if not isinstance(config, dict) or any(config.get(key) for key in _OTHER_THAN_DENSE):
            return None
        found = _Config.model_validate(config)
        headers = [_header(folder / file.name) for file in weight_files(checkpoint)]
    except (OSError, ValueError, ValidationError):
        return None
    bits = {"W8A8": 8, "W4A16": 4}.get(checkpoint.quantization or "", 8 * value_bytes)
    is_int8 = checkpoint.quantization == "W8A8" and multiplies_int8
    is_unpacked = checkpoint.quantization == "W8A8" and not multiplies_int8
    num_params = sum(_num_layer_params(header, bits) for header in headers)
    if not num_params or any(kind != "full_attention" for kind in found.layer_types):
        return None
    return ModelShape(
        num_linear_params=num_params,
        num_layers=found.num_hidden_layers,
        num_q_heads=found.num_attention_heads,
        num_kv_heads=found.num_key_value_heads or found.num_attention_heads,
        head_dim=found.head_dim or found.hidden_size // found.num_attention_heads,
        hidden_size=found.hidden_size,
        vocab_size=found.vocab_size,
        weight_bytes=value_bytes if is_unpacked else bits / 8,
        value_bytes=value_bytes,
        kv_value_bytes=kv_value_bytes or value_bytes,
        is_int8=is_int8,
    )


def _header(path: Path) -> dict[str, _Tensor]:
    """Return the tensors of a safetensors file by name; nothing but its header is read.

    Raises:
        ValueError: it is another kind of file.
    """
    with path.open("rb") as file:
        num_bytes = int.from_bytes(file.read(8), "little")
        if num_bytes > _MAX_HEADER_BYTES:
            raise ValueError(f"{path}: a header of {num_bytes} bytes")
        found: dict[str, Any] = json.loads(file.read(num_bytes))
    return {
        name: _Tensor.model_validate(one) for name, one in found.items() if name != "__metadata__"
    }


def _num_layer_params(tensors: dict[str, _Tensor], bits: int) -> int:
    """Return the weights of the layers' matrices; packed ones hold several to an integer."""
    num_params = 0
    for name, tensor in tensors.items():
        match = _LAYER_WEIGHT.search(name)
        if match is None or len(tensor.shape) != 2 or _EMBEDS.search(name):
            continue
        rows, columns = tensor.shape
        packed = _BITS_PER_PACKED // bits if match[1] == "weight_packed" else 1
        num_params += rows * columns * packed
    return num_params
