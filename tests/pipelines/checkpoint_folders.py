"""Checkpoint folders to test with: a tiny Llama, written without torch or safetensors."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Tensors = dict[str, "np.ndarray"]
_DTYPES = {"BF16": np.uint16, "F32": np.float32, "I8": np.int8, "I32": np.int32, "I64": np.int64}

TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
INPUTS = {"down_proj": 128}
OUTPUTS = {"k_proj": 32, "v_proj": 32, "gate_proj": 128, "up_proj": 128}


def linear_names() -> list[str]:
    """The tiny model's linear layers, but its output layer."""
    attention = [f"self_attn.{name}_proj" for name in "qkvo"]
    feed_forward = [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    return [f"model.layers.{n}.{part}" for n in range(2) for part in attention + feed_forward]


def tiny_tensors(seed: int = 0) -> Tensors:
    """The tiny model's weights as float32, each of which BF16 holds exactly."""
    random = np.random.default_rng(seed)

    def drawn(*shape: int) -> "np.ndarray":
        return from_bf16(to_bf16(random.normal(0, 0.05, shape).astype(np.float32)))

    tensors = {"model.embed_tokens.weight": drawn(96, 64), "lm_head.weight": drawn(96, 64)}
    for layer in linear_names():
        kind = layer.rsplit(".", 1)[1]
        tensors[f"{layer}.weight"] = drawn(OUTPUTS.get(kind, 64), INPUTS.get(kind, 64))
    norms = ["input_layernorm", "post_attention_layernorm"]
    for name in ["model.norm", *(f"model.layers.{n}.{norm}" for n in range(2) for norm in norms)]:
        tensors[f"{name}.weight"] = drawn(64)
    return tensors


def write_folder(
    folder: Path, *, config: Mapping[str, object] = TINY_LLAMA, tensors: Tensors | None = None
) -> Path:
    """Writes a folder with one weights file, and a README that is no part of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "a"}))
    (folder / "README.md").write_text("# A model\n")
    write_safetensors(folder / "model.safetensors", tensors or tiny_tensors())
    return folder


def write_in_two_files(folder: Path, tensors: Tensors) -> None:
    """Replaces the folder's weights by two files and their index."""
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:7], names[7:]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        write_safetensors(folder / file, {name: tensors[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """Writes float32 arrays as BF16."""
    header: dict[str, object] = {}
    body = b""
    for name, tensor in tensors.items():
        data = to_bf16(tensor).tobytes()
        place = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": place}
        body += data
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


def read_safetensors(folder: Path) -> Tensors:
    """All tensors of a folder; BF16 as float32, integers as they are."""
    tensors: Tensors = {}
    for path in folder.glob("*.safetensors"):
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            flat = np.frombuffer(content[start:end], _DTYPES[entry["dtype"]])
            numbers = from_bf16(flat) if entry["dtype"] == "BF16" else flat
            tensors[name] = numbers.reshape(entry["shape"])
    return tensors


def to_bf16(numbers: "np.ndarray") -> "np.ndarray":
    """The upper half of each float32, cut off: no rounding is needed to be exact later."""
    return (np.ascontiguousarray(numbers, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(halves: "np.ndarray") -> "np.ndarray":
    """BF16 bits as float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def flip_a_byte(path: Path, offset: int = -1) -> None:
    """Changes one byte, size and all other bytes stay."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
