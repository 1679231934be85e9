"""A model's files on disk: what an engine loads, with the hash of every file."""

from dataclasses import dataclass
from typing import Literal

Weights = Literal["int8", "bf16", "int4", "as_is"]
"""How weights are stored: `int8` is W8A8, `as_is` takes the folder as its owner made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a checkpoint: its name in the folder, size in bytes, SHA-256 in hex."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A folder that an engine loads, and what it was made from.

    `model_id` and `model_revision` are what the job asked for; a local folder or the bundled
    model has no revision. `quantization` is the scheme found in the folder's config
    (`W8A8`, or None for unquantized weights).
    """

    path: str
    model_id: str
    model_revision: str | None
    weights: Weights
    quantization: str | None
    files: tuple[ModelFile, ...]
    weights_hash: str
    """Content id over all files: one changed byte is another model."""
