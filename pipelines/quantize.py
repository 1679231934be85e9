"""The step that makes weights: BF16 from the bundled GGUF, W8A8 or W4A16 from BF16.

What is made lies in `cache_dir/<model>-<weights>-<12 digits of its origin>/` and is finished
from the moment that folder exists: it is written as a draft, flushed to the disk and renamed.
Where a checkpoint already has the weights that are asked for, nothing is made.
"""

import dataclasses
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from pipelines import models
from pipelines.engines.checkpoint_writer import Answer, LayerError, Request, write_checkpoint
from schemas.checkpoints import Checkpoint, Weights
from schemas.errors import SettingsError, VerificationError
from schemas.ids import content_id

Report = Callable[[str], None]
"""Takes one line of progress, for people; may be called from another thread."""

RECIPE: Final = 1
"""Part of every folder's name: raise it when the same origin is to give other weights."""
_BUILD_SCHEME = "bd1"
_SCHEMES: Final[dict[Weights, Literal["W8A8", "W4A16"]]] = {"int8": "W8A8", "int4": "W4A16"}


class Record(BaseModel):
    """`quantization.json`: what was made of what, by which libraries, at which error.

    `origin_hash` is the `weights_hash` of what it was made from, `files` the SHA-256 of what
    was written. The errors compare dequantized with original weights, layer by layer; BF16
    weights from a GGUF file have none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    recipe: int
    model_id: str
    model_revision: str | None
    origin_hash: str
    scheme: str
    versions: dict[str, str]
    files: dict[str, str]
    layers: tuple[LayerError, ...]


def prepare(
    model_id: str,
    *,
    weights: Weights,
    revision: str | None = None,
    cache_dir: Path,
    report: Report,
) -> Checkpoint:
    """Return the checkpoint that an engine loads for this model with these weights.

    It is found (`models.resolve`) and, where its weights are others, made (`build`).
    """
    origin = models.resolve(model_id, revision=revision, cache_dir=cache_dir)
    return build(origin, weights, cache_dir=cache_dir, report=report)


def build(origin: Checkpoint, weights: Weights, *, cache_dir: Path, report: Report) -> Checkpoint:
    """Return `origin` with `weights`: itself where it has them, else a folder made once.

    One process makes a folder, others wait for it and use it. A process that dies leaves only
    a draft, which the next one removes. An existing folder is used if its files have the
    hashes they were written with.

    Raises:
        SettingsError: these weights cannot be had from this checkpoint; the message says which
            can. Nothing was written.
        TryElsewhereError: making them failed on this machine; nothing was published.
        VerificationError: a file of an existing folder is not as it was written.
    """
    if not must_be_made(origin, weights):
        return dataclasses.replace(origin, weights=weights)
    cache = cache_dir.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / _folder_name(origin, weights)
    with _locked(folder, report):
        if not folder.exists():
            exact = _dequantized(origin, weights, cache, report)
            _publish(origin, exact, weights, folder, report)
        return _opened(origin, weights, folder, cache)


def must_be_made(origin: Checkpoint, weights: Weights) -> bool:
    """Return whether `weights` have to be made of `origin`; False if it has them already.

    Raises:
        SettingsError: they cannot be had from it.
    """
    found = origin.quantization
    if found == models.GGUF:
        if weights == "as_is":
            raise _unsupported(origin, weights, "no engine here loads a GGUF file", "int8, bf16")
        return True
    if found is None:
        return weights in _SCHEMES
    if weights == "as_is" or _SCHEMES.get(weights) == found:
        return False
    raise _unsupported(origin, weights, "quantized weights are not quantized again", "as_is")


def _dequantized(origin: Checkpoint, weights: Weights, cache: Path, report: Report) -> Checkpoint:
    """Return what the child starts from: BF16 for INT8 and INT4, which a GGUF file is not."""
    if origin.quantization == models.GGUF and weights != "bf16":
        return build(origin, "bf16", cache_dir=cache, report=report)
    return origin


def _unsupported(origin: Checkpoint, weights: Weights, why: str, instead: str) -> SettingsError:
    return SettingsError(
        f"model {origin.model_id!r}: weights are {weights!r}, but {origin.path} holds "
        f"{origin.quantization} and {why}; use weights: {instead}"
    )


def _folder_name(origin: Checkpoint, weights: Weights) -> str:
    identity = content_id(
        _BUILD_SCHEME,
        {"origin": origin.weights_hash, "weights": weights, "recipe": RECIPE},
    )
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(origin.model_id).name)[:80]
    return f"{model}-{weights}-{identity.removeprefix(f'{_BUILD_SCHEME}-')[:12]}"


@contextmanager
def _locked(folder: Path, report: Report) -> Generator[None]:
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        report(f"another process is making {folder.name}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _publish(
    origin: Checkpoint, exact: Checkpoint, weights: Weights, folder: Path, report: Report
) -> None:
    """Make `folder` out of `exact`; a crash before the last step leaves a draft and no folder.

    1  the drafts of those who died are removed: the lock says that nobody is at work on them
    2  a child process writes the weights
    3  tokenizer and other texts are copied, everything is checked and recorded
    4  all is flushed to the disk: else a power cut could leave the folder with holes in it
    5  the rename: now the folder exists, whole
    """
    for leftover in folder.parent.glob(f".{folder.name}.draft-*"):
        shutil.rmtree(leftover)
    report(f"making {folder.name}")
    started_s = time.monotonic()
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.draft-", dir=folder.parent))
    try:
        answer = write_checkpoint(_request(exact, weights, draft), report)
        _copy_texts(exact, draft)
        _write_record(origin, answer, draft)
        _flush(draft)
        draft.rename(folder)
        _flush_entry(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # after the rename there is none
    report(f"made {folder.name} in {time.monotonic() - started_s:.0f} s")


def _request(exact: Checkpoint, weights: Weights, draft: Path) -> Request:
    return Request(
        scheme=_SCHEMES.get(weights, "BF16"),
        source=Path(exact.path),
        weight_files=tuple(file.name for file in models.weight_files(exact)),
        target=draft,
    )


def _copy_texts(exact: Checkpoint, draft: Path) -> None:
    """Copy what the child did not write; the index of shards is its own or not needed."""
    for file in exact.files:
        target = draft / file.name
        if not file.name.endswith((".safetensors", ".gguf", ".index.json")) and not target.exists():
            shutil.copyfile(Path(exact.path) / file.name, target)


def _write_record(origin: Checkpoint, answer: Answer, draft: Path) -> None:
    made = models.read_folder(draft, model_id=origin.model_id, cache_dir=draft.parent)
    record = Record(
        recipe=RECIPE,
        model_id=origin.model_id,
        model_revision=origin.model_revision,
        origin_hash=origin.weights_hash,
        scheme=answer.scheme,
        versions=answer.versions,
        files={file.name: file.sha256 for file in made.files},
        layers=answer.layers,
    )
    (draft / models.RECORD_NAME).write_text(record.model_dump_json(indent=2) + "\n")


def _flush(draft: Path) -> None:
    """Flush every file and the folder; readable by all, as a folder made by hand would be."""
    for path in draft.iterdir():
        path.chmod(0o644)
        _flush_entry(path)
    draft.chmod(0o755)
    _flush_entry(draft)


def _flush_entry(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _opened(origin: Checkpoint, weights: Weights, folder: Path, cache: Path) -> Checkpoint:
    """Return the checkpoint in a folder made here, after comparing it with its record."""
    again = f"remove {folder} to have it made again"
    try:
        record = Record.model_validate_json((folder / models.RECORD_NAME).read_bytes())
    except (OSError, ValidationError) as error:
        raise VerificationError(f"{folder / models.RECORD_NAME} is unreadable; {again}") from error
    found = models.read_folder(
        folder,
        model_id=origin.model_id,
        revision=origin.model_revision,
        weights=weights,
        cache_dir=cache,
    )
    hashes = {file.name: file.sha256 for file in found.files}
    names = sorted(record.files.keys() | hashes.keys())
    wrong = [name for name in names if record.files.get(name) != hashes.get(name)]
    if record.origin_hash != origin.weights_hash:
        wrong.append(f"{models.RECORD_NAME} (made from another model)")
    if wrong:
        raise VerificationError(f"not as it was written: {', '.join(wrong)}; {again}")
    return found
