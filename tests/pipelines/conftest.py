"""A tiny chat tokenizer made on the spot, jobs over files in tmp_path, and runs by the echo engine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.chat import ChatTokenizer, load
from schemas.checkpoints import Checkpoint
from schemas.job_spec import JobSpec, parse_job

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = ["the ticket is about billing and shipping", "an account with a bug report and a feature"]


def write_tokenizer(folder: Path, chat_template: str | None = CHATML) -> Path:
    """Write a byte-level BPE tokenizer with ChatML markers into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(name, special=True) for name in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "bos_token": "<|im_start|>",
        "model_max_length": 512,
    }
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llama", "max_position_embeddings": 512})
    )
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def chat(tiny_folder: Path) -> ChatTokenizer:
    return load(tiny_folder)


@pytest.fixture(scope="session")
def checkpoint(tiny_folder: Path) -> Checkpoint:
    return Checkpoint(
        path=str(tiny_folder),
        model_id="tiny",
        model_revision=None,
        weights="int8",
        quantization=None,
        files=(),
        weights_hash="weights-tiny",
    )


@pytest.fixture
def write_input(tmp_path: Path) -> Callable[..., str]:
    """Writes columns as one Parquet file of the input and returns the input's folder."""

    def written(
        columns: dict[str, Any] | pa.Table, name: str = "rows.parquet", **options: Any
    ) -> str:
        folder = tmp_path / "in"
        folder.mkdir(exist_ok=True)
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, folder / name, **options)
        return str(folder)

    return written


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., JobSpec]:
    """Makes a job over tmp_path/in with ids in `id` and prompts in `text`; sections override."""

    def made(**sections: Any) -> JobSpec:
        fields: dict[str, Any] = {
            "name": "tested",
            "input": {"uri": str(tmp_path / "in"), "id_column": "id"},
            "prompt": {"column": "text"},
            "model": {"id": "tiny"},
            "sampling": {"max_tokens": 8},
            "output": {"uri": str(tmp_path / "out")},
            "price": {"usd_per_device_hour": 3.0},
        }
        for name, section in sections.items():
            both = isinstance(section, dict) and isinstance(fields.get(name), dict)
            fields[name] = {**fields[name], **section} if both else section
        if "prompt" in sections:
            fields["prompt"] = sections["prompt"]
        return parse_job(fields, source="test")

    return made
