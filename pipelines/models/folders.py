"""What lies in a checkpoint's folder: which files count, and which folders are refused."""

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from pipelines.models.hashes import hashed_files, sha256_of, weights_hash
from schemas.checkpoints import Checkpoint, ModelFile, Weights
from schemas.errors import SettingsError, VerificationError
from schemas.names import nearest

GGUF: Final = "GGUF"
"""The `quantization` of a checkpoint that is one GGUF file: no engine loads it as it is."""
RECORD_NAME: Final = "quantization.json"
"""What `quantize` writes beside the weights it made; it changes no answer and is not hashed."""
COUNTED: Final = (
    *("*.safetensors", "*.json", "*.jinja"),
    *("*.model", "*.tiktoken", "merges.txt", "vocab.txt"),
)
LEFT_OUT: Final = (RECORD_NAME, "consolidated*", ".*", "*/*")
"""Mistral's second copy of the weights, hidden files, and everything in subfolders."""
_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_SHARD_INDEX = "model.safetensors.index.json"
_NOT_A_CONFIG = ("tokenizer.json", "vocab.json", _SHARD_INDEX)
"""JSON files of many megabytes that hold words or tensor names, and no settings."""


_Content = TypeVar("_Content", bound=BaseModel)


class _Numbers(BaseModel):
    num_bits: int = 16
    type: str = "float"


class _Group(BaseModel):
    weights: _Numbers | None = None
    input_activations: _Numbers | None = None


class _Quantization(BaseModel):
    quant_method: str = "unknown"
    config_groups: dict[str, _Group | list[str]] = {}


class _Config(BaseModel):
    quantization_config: _Quantization | None = None
    compression_config: _Quantization | None = None  # compressed-tensors before 0.6


class _ShardIndex(BaseModel):
    weight_map: dict[str, str]


def read_folder(
    folder: Path,
    *,
    model_id: str,
    cache_dir: Path,
    revision: str | None = None,
    weights: Weights = "as_is",
) -> Checkpoint:
    """Return the checkpoint in `folder`, with the hash of every file that can change an answer.

    README, licences, pickled copies of the weights and subfolders are left out. Hashes of
    files that did not change are remembered in `cache_dir`: `hashed_files` says what that
    trusts, and `verify` trusts nothing.

    Raises:
        SettingsError: a file is missing or is not what its name says, the weights are only
            there pickled, or the folder wants to run code of its own.
    """
    what = f"model {model_id!r}"
    if not folder.is_dir():
        folders = [path.name for path in folder.parent.glob("*") if path.is_dir()]
        raise SettingsError(f"{what}: {folder} is not a folder{nearest(folder.name, folders)}")
    names = _counted_names(folder)
    _refuse_missing(what, folder, names)
    _refuse_remote_code(what, folder, names)
    config = _parsed(_Config, folder / "config.json")
    found = config.quantization_config or config.compression_config
    files = hashed_files(folder, names, cache_dir)
    return Checkpoint(
        path=str(folder),
        model_id=model_id,
        model_revision=revision,
        weights=weights,
        quantization=None if found is None else _scheme(found),
        files=files,
        weights_hash=weights_hash(files),
    )


def weight_files(checkpoint: Checkpoint) -> tuple[ModelFile, ...]:
    """Return the files that hold weights, in the order of their names."""
    return tuple(f for f in checkpoint.files if f.name.endswith((".safetensors", ".gguf")))


def verify(checkpoint: Checkpoint) -> None:
    """Read every file again and compare it with `checkpoint`; no remembered hash is trusted.

    Raises:
        VerificationError: files changed, are gone, or are new; every one is named.
    """
    folder = Path(checkpoint.path)
    faults: list[str] = []
    for file in checkpoint.files:
        path = folder / file.name
        if not path.is_file():
            faults.append(f"{file.name} is gone")
        elif (found := sha256_of(path)) != file.sha256:
            faults.append(f"{file.name} changed: expected sha256 {file.sha256}, found {found}")
    if checkpoint.quantization != GGUF and folder.is_dir():
        new = set(_counted_names(folder)) - {file.name for file in checkpoint.files}
        faults.extend(f"{name} is new" for name in sorted(new))
    if faults:
        raise VerificationError(f"model {checkpoint.model_id!r} in {folder}: {'; '.join(faults)}")


def _counted_names(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return [n for n in names if _matches(n, COUNTED) and not _matches(n, LEFT_OUT)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _refuse_missing(what: str, folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder without config, tokenizer, or all of its safetensors files."""
    there = sorted(path.name for path in folder.iterdir())
    texts = [name for name in there if not name.endswith((".safetensors", *_PICKLED))]
    for expected in ("config.json", "tokenizer.json"):
        if expected not in names:
            raise SettingsError(
                f"{what}: expected {expected} in {folder}, found {len(there)} other file(s)"
                f"{nearest(expected, texts)}"
            )
    if _SHARD_INDEX in names:
        shards = set(_parsed(_ShardIndex, folder / _SHARD_INDEX).weight_map.values())
        if missing := sorted(shards - set(names)):
            raise SettingsError(
                f"{what}: {_SHARD_INDEX} in {folder} names {len(shards)} files, "
                f"{len(missing)} of them are missing: {', '.join(missing[:3])}"
            )
    elif not any(name.endswith(".safetensors") for name in names):
        pickled = [name for name in there if name.endswith(_PICKLED)]
        found = f"pickled weights, which run code when loaded: {pickled[:3]}" if pickled else "none"
        raise SettingsError(
            f"{what}: expected weights as *.safetensors in {folder}, found {found}; "
            "convert them with `save_pretrained(..., safe_serialization=True)`"
        )


def _refuse_remote_code(what: str, folder: Path, names: Sequence[str]) -> None:
    for name in names:
        if not name.endswith(".json") or name in _NOT_A_CONFIG:
            continue
        if re.search(r'"auto_map"\s*:', (folder / name).read_text("utf-8", errors="replace")):
            raise SettingsError(
                f"{what}: {name} in {folder} has an `auto_map`: it would run Python code that came "
                "with the model; take a model whose architecture transformers knows, or remove "
                "the entry after making sure that it loads without"
            )


def _parsed(kind: type[_Content], path: Path) -> _Content:
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise SettingsError(f"{path}: {place or 'not JSON'}: {fault['msg'].lower()}") from error


def _scheme(found: _Quantization) -> str:
    """Return the scheme in one word, such as `W8A8`; other methods by their own name (`gptq`)."""
    if found.quant_method != "compressed-tensors":
        return found.quant_method
    schemes = {
        _group_scheme(group) if isinstance(group, _Group) else name.upper()
        for name, group in found.config_groups.items()
    }
    return "+".join(sorted(schemes)) or found.quant_method


def _group_scheme(group: _Group) -> str:
    weights = group.weights or _Numbers()
    inputs = group.input_activations or _Numbers()
    is_float = any(n.type == "float" and n.num_bits < 16 for n in (weights, inputs))
    return f"W{weights.num_bits}A{inputs.num_bits}{'-FP' if is_float else ''}"
