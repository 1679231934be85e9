"""Which layers of a model are quantized, and one layer's weights as integers and scales.

Imported by `checkpoint_child` alone, inside its process: it needs torch and transformers.
Every number here is compressed-tensors' own; we choose the layers, the preset and the type of
the scales, and measure how far the weights moved.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    QuantizationStatus,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from pipelines.engines.checkpoint_writer import LayerError
from schemas.errors import SettingsError

IGNORED = "lm_head"
"""The layer that stays in BF16: it takes little of the time and its errors reach every token."""
GROUP_SIZES = (128, 64, 32)
"""INT4 group sizes, the usual one first; the first that divides every layer's inputs is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How each layer is quantized; without `group_size` there is one scale per output channel.

    `scale_dtype` is the type in which vLLM keeps the scales (BF16 for INT4, where a scale
    rounded after the weights would move them again); `layout` is compressed-tensors' format.
    """

    scheme: QuantizationScheme
    weights: QuantizationArgs
    group_size: int | None
    scale_dtype: torch.dtype
    layout: Literal["int-quantized", "pack-quantized"]


def linear_layers(source: Path, paths: Sequence[Path]) -> dict[str, int]:
    """Return the number of inputs of each layer to quantize, after comparing model and files.

    The architecture says which layers are linear: it is built without memory, on torch's
    `meta` device. Tensor names alone would take a router or an expert for a linear layer.

    Raises:
        SettingsError: config.json names no known text-generation architecture, or the files
            are broken, hold matrices that are neither linear layers nor embeddings, or lack one.
    """
    model = _model_without_weights(source)
    modules = dict(model.named_modules())
    linear = {n: m.in_features for n, m in modules.items() if isinstance(m, torch.nn.Linear)}
    kept = {n for n, m in modules.items() if isinstance(m, torch.nn.Embedding)} | {IGNORED}
    layers = {name: inputs for name, inputs in linear.items() if name not in kept}
    ranks = _ranks(paths)
    known = {f"{name}.weight" for name in (*layers, *kept)}
    strange = sorted(name for name, rank in ranks.items() if rank > 1 and name not in known)
    missing = sorted(name for name in layers if f"{name}.weight" not in ranks)
    if strange or missing:
        raise SettingsError(
            f"{source}: {type(model).__name__} cannot be quantized layer by layer: "
            f"{len(strange)} matrices are neither linear layers nor embeddings {strange[:2]}, "
            f"{len(missing)} linear layers have no matrix {missing[:2]}; "
            "use a ready-made W8A8 checkpoint, or weights: bf16"
        )
    return layers


def _ranks(paths: Sequence[Path]) -> dict[str, int]:
    """Return the number of dimensions of every tensor: 2 for a matrix; no weights are read."""
    ranks: dict[str, int] = {}
    for path in paths:
        try:
            with safe_open(path, framework="pt") as tensors:
                ranks |= {n: len(tensors.get_slice(n).get_shape()) for n in list(tensors.keys())}
        except SafetensorError as error:
            raise SettingsError(f"{path} is not a whole safetensors file: {error}") from error
    return ranks


def _model_without_weights(source: Path) -> torch.nn.Module:
    try:
        config = AutoConfig.from_pretrained(source, local_files_only=True)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except (ValueError, KeyError) as error:
        raise SettingsError(
            f"{source}: config.json names no text-generation architecture that transformers "
            f"{version('transformers')} knows ({str(error).splitlines()[0][:200]}); "
            "use a ready-made W8A8 checkpoint"
        ) from error


def recipe_for(scheme: Literal["W8A8", "W4A16"], layers: dict[str, int]) -> Recipe:
    """Return the recipe for `scheme`; INT4 groups are sized so that every layer divides.

    Raises:
        SettingsError: no group size divides the inputs of every layer.
    """
    preset = preset_name_to_scheme(scheme, ["Linear"])
    if preset.weights is None:
        raise TypeError(f"compressed-tensors: preset {scheme} quantizes no weights")
    if scheme == "W8A8":
        return Recipe(
            scheme=preset,
            weights=preset.weights,
            group_size=None,
            scale_dtype=torch.float32,
            layout="int-quantized",
        )
    fitting = [size for size in GROUP_SIZES if all(n % size == 0 for n in layers.values())]
    if not fitting:
        raise SettingsError(
            f"weights: int4 needs layers with a multiple of {GROUP_SIZES[-1]} inputs, found "
            f"{sorted(set(layers.values()))}; use int8"
        )
    weights = preset.weights.model_copy(update={"group_size": fitting[0]})
    return Recipe(
        scheme=preset.model_copy(update={"weights": weights}),
        weights=weights,
        group_size=fitting[0],
        scale_dtype=torch.bfloat16,
        layout="pack-quantized",
    )


def quantized(
    layer: str, weight: torch.Tensor, recipe: Recipe
) -> tuple[dict[str, torch.Tensor], LayerError]:
    """Return the tensors that replace `weight` ([outputs, inputs], float32), and the error.

    Raises:
        SettingsError: the weight holds NaN or infinite values.
    """
    groups = weight.unflatten(-1, (-1, recipe.group_size or weight.shape[-1]))
    lowest, highest = groups.amin(dim=-1), groups.amax(dim=-1)
    if not bool((lowest.isfinite() & highest.isfinite()).all()):
        raise SettingsError(f"{layer}.weight holds NaN or infinite values: a broken checkpoint")
    scale, _ = calculate_qparams(lowest, highest, recipe.weights)
    compressor = BaseCompressor.get_value_from_registry(recipe.layout)
    state: dict[str, torch.Tensor | None] = {
        "weight": weight,
        "weight_scale": scale.to(recipe.scale_dtype),
    }
    parts = compressor.compress(state, recipe.scheme)
    tensors = {f"{layer}.{name}": part for name, part in parts.items() if part is not None}
    restored = compressor.decompress(parts, recipe.scheme)["weight"]
    if restored is None:
        raise TypeError(f"compressed-tensors: {recipe.layout} gave no weight back for {layer}")
    norms = weight.norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    errors = (restored.float() - weight).norm(dim=-1) / norms
    return tensors, LayerError(
        layer=layer,
        max_relative_error=float(errors.max()),
        mean_relative_error=float(errors.mean()),
    )


def quantized_config(source: Path, recipe: Recipe) -> dict[str, object]:
    """Return the config.json of `source` with the quantization that vLLM reads from it."""
    quantization = QuantizationConfig(
        config_groups={"group_0": recipe.scheme},
        format=recipe.layout,
        quantization_status=QuantizationStatus.COMPRESSED,
        ignore=[IGNORED],
    )
    config: dict[str, object] = json.loads((source / "config.json").read_text(encoding="utf-8"))
    return config | {
        "dtype": "bfloat16",
        "quantization_config": {
            **quantization.model_dump(mode="json"),
            "version": version("compressed-tensors"),
        },
    }
