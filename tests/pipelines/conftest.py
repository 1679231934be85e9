"""A tiny chat tokenizer made on the spot, jobs over files in tmp_path, runs by the echo engine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.chat import ChatTokenizer, load
from pipelines.engines import EchoEngine, EchoFaults, Engine
from pipelines.ledger import written_manifest
from pipelines.storage import open_store
from pipelines.tables import read_own
from pipelines.tools import EngineNeed, Tools
from schemas.checkpoints import Checkpoint
from schemas.generations import GENERATIONS
from schemas.job_spec import JobSpec, parse_job
from schemas.rejects import REJECTS

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


@pytest.fixture
def make_tools(checkpoint: Checkpoint) -> Callable[..., Tools]:
    """Makes tools whose n-th engine is an echo with the n-th faults; the last goes on."""

    def made(*faults: EchoFaults, max_num_seqs: int = 64, **others: Any) -> Tools:
        left = iter(faults)

        def open_engine(need: EngineNeed) -> Engine:
            return EchoEngine(
                max_model_len=need.context_length,
                max_num_seqs=max_num_seqs,
                stall_timeout_s=0.05,
                faults=next(left, faults[-1] if faults else None),
            )

        tools: dict[str, Any] = {
            "checkpoint": lambda _job: checkpoint,
            "context_length": lambda _job, _checkpoint: 512,
            "open_engine": open_engine,
            "engine": "echo",
        }
        return Tools(**{**tools, **others})

    return made


@pytest.fixture
def rows_of() -> Callable[[str], tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Reads a sealed run's generations and rejects by the manifest."""

    def rows(run_uri: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        store = open_store(run_uri)
        manifest = written_manifest(store)
        assert manifest is not None
        found: dict[str, list[dict[str, Any]]] = {"generations": [], "rejects": []}
        for commit in manifest.commits:
            for part in commit.parts:
                schema = GENERATIONS if part.kind == "generations" else REJECTS
                table = read_own(store.get(part.key), schema, key=part.key)
                found[part.kind] += table.to_pylist()
        return found["generations"], found["rejects"]

    return rows
