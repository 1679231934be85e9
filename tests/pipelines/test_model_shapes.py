import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import models
from schemas.checkpoints import Checkpoint
from tests.pipelines.checkpoint_folders import TINY_LLAMA, tiny_tensors, write_folder
from tests.pipelines.checkpoint_folders import write_in_two_files as split

PER_LAYER = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64
"""q and o, k and v, gate, up and down of the tiny Llama."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return models.resolve(str(write_folder(tmp_path / "tiny")), cache_dir=tmp_path / "cache")


def rewritten(checkpoint: Checkpoint, **entries: object) -> Checkpoint:
    config = Path(checkpoint.path) / "config.json"
    config.write_text(json.dumps({**TINY_LLAMA, **entries}))
    return checkpoint


def test_a_shape_counts_the_layers_matrices_and_neither_embeddings_nor_lm_head(checkpoint):
    shape = models.model_shape(checkpoint, value_bytes=2)

    assert shape is not None
    assert shape.num_linear_params == 2 * PER_LAYER
    assert (shape.num_layers, shape.num_q_heads, shape.num_kv_heads, shape.head_dim) == (
        2,
        4,
        2,
        16,
    )
    assert (shape.weight_bytes, shape.value_bytes, shape.is_int8) == (2.0, 2, False)
    assert shape.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2
    assert shape.lm_head_bytes == 64 * 96 * 2


def test_int8_weights_take_a_byte_each_also_where_the_engine_computes_in_fp32(checkpoint):
    shape = models.model_shape(replace(checkpoint, quantization="W8A8"), value_bytes=4)

    assert shape is not None
    assert (shape.weight_bytes, shape.value_bytes, shape.is_int8) == (1.0, 4, True)


def test_int8_weights_that_are_multiplied_as_floats_take_a_float_each(checkpoint):
    shape = models.model_shape(
        replace(checkpoint, quantization="W8A8"), value_bytes=4, multiplies_int8=False
    )

    assert shape is not None
    assert (shape.weight_bytes, shape.is_int8) == (4.0, False)


def test_weights_in_several_files_are_counted_once_each(checkpoint, tmp_path):
    split(Path(checkpoint.path), tiny_tensors())
    found = models.resolve(checkpoint.path, cache_dir=tmp_path / "cache")

    shape = models.model_shape(found, value_bytes=2)
    assert shape is not None
    assert shape.num_linear_params == 2 * PER_LAYER


@pytest.mark.parametrize(
    "entries",
    [{"num_local_experts": 8}, {"kv_lora_rank": 512}, {"layer_types": ["linear_attention"]}],
    ids=lambda value: next(iter(value)),
)
def test_a_model_whose_work_is_another_formula_has_no_shape(checkpoint, entries):
    assert models.model_shape(rewritten(checkpoint, **entries), value_bytes=2) is None


def test_weight_files_that_cannot_be_read_have_no_shape(checkpoint):
    (Path(checkpoint.path) / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not json, at all")

    assert models.model_shape(checkpoint, value_bytes=2) is None
