"""The child process that writes checkpoints: GGUF to BF16, and BF16 to INT8 or INT4.

    python -m pipelines.engines.checkpoint_child

It runs apart so that torch, its memory and its threads end with it. One JSON line on stdin
says what to make, one on stdout says how it ended, and stderr carries a line per step. The
parent keeps stdin open: when it closes, the parent is dead, and this process ends too.

It writes into the folder it is given and nowhere else, and knows nothing of drafts, locks or
hashes: `pipelines.quantize` makes a finished checkpoint of what it leaves.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from pipelines.engines.checkpoint_writer import PROGRESS, Answer, LayerError, Request
from schemas.errors import SettingsError

if TYPE_CHECKING:
    import torch

LIBRARIES = ("torch", "transformers", "compressed-tensors", "safetensors", "gguf")


def main() -> None:
    """Answer the one request on stdin; a refusal is an answer, anything else a traceback."""
    answers = _private_stdout()
    request = Request.model_validate_json(sys.stdin.buffer.readline())
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    try:
        layers = _made(request)
        versions = {name: version(name) for name in LIBRARIES}
        answer = Answer(scheme=request.scheme, layers=layers, versions=versions)
    except SettingsError as error:
        answer = Answer(refused=str(error))
    with answers:
        answers.write(answer.model_dump_json())


def _private_stdout() -> TextIO:
    """Return a stream on the real stdout; from here on, what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _die_with_the_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


def _progress(line: str) -> None:
    sys.stderr.write(f"{PROGRESS}{line}\n")
    sys.stderr.flush()


def _made(request: Request) -> tuple[LayerError, ...]:
    if request.scheme == "BF16":
        dequantize_gguf(request)
        return ()
    return tuple(quantize_folder(request, request.scheme))


def dequantize_gguf(request: Request) -> None:
    """Write the model and the tokenizer of a GGUF file as a BF16 checkpoint.

    Needs memory for the whole model: about 6 bytes per parameter.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    (name,) = request.weight_files
    _progress(f"BF16: reading {name}")
    model = AutoModelForCausalLM.from_pretrained(
        request.source,
        gguf_file=name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(request.source, gguf_file=name, local_files_only=True)
    _progress("BF16: writing")
    model.save_pretrained(request.target)
    tokenizer.save_pretrained(request.target)


def quantize_folder(request: Request, scheme: Literal["W8A8", "W4A16"]) -> Iterator[LayerError]:
    """Write the weights and the config of a BF16 checkpoint, quantized.

    Yields each layer's error. Rounds to nearest, without calibration data; tensors that are
    not quantized are written in BF16. Works through one safetensors file at a time: the peak
    of memory is one output file and a few copies of one tensor, whatever the model's size.

    Raises:
        SettingsError: the model has weights that this scheme cannot hold.
    """
    from safetensors.torch import save_file

    from pipelines.engines import int_weights

    source, target = request.source, request.target
    paths = [source / name for name in request.weight_files]
    layers = int_weights.linear_layers(source, paths)
    recipe = int_weights.recipe_for(scheme, layers)
    files: dict[str, str] = {}
    for number, path in enumerate(paths, start=1):
        _progress(f"{scheme}: file {number} of {len(paths)}, {path.name}")
        written: dict[str, torch.Tensor] = {}
        for name, tensor in _tensors(path):
            layer = name.removesuffix(".weight")
            if layer != name and layer in layers:
                parts, error = int_weights.quantized(layer, tensor.float(), recipe)
                written |= parts
                yield error
            else:
                written[name] = tensor.bfloat16() if tensor.is_floating_point() else tensor
        save_file(written, target / path.name, metadata={"format": "pt"})
        files |= dict.fromkeys(written, path.name)
    _write_json(target / "config.json", int_weights.quantized_config(source, recipe))
    if len(paths) > 1:
        index = {"metadata": {}, "weight_map": files}
        _write_json(target / "model.safetensors.index.json", index)


def _tensors(path: Path) -> Iterator[tuple[str, "torch.Tensor"]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as tensors:
        for name in sorted(tensors.keys()):
            yield name, tensors.get_tensor(name)


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
