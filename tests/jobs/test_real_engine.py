"""The sample jobs, and public texts where they are at hand, through the command and real vLLM."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.export import generations
from pipelines.storage import open_store

ROOT = Path(__file__).parents[2]
PUBLIC = ROOT.parent / "shared" / "data"
PARTITION = "2026-11-03"

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
]


def promptmill(*arguments: str, code: int = 0) -> dict:
    """Run the command as a user does and return its one JSON object."""
    command = [sys.executable, "-c", "from jobs.cli import main; main()", *arguments, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def rows_at(run_uri: str) -> list[dict]:
    """Return a run's generations."""
    return generations(open_store(run_uri)).collect().to_dicts()


@pytest.fixture(scope="module")
def summaries(tmp_path_factory) -> tuple[str, dict]:
    """The output of summarize_tickets over the first 40 tickets of a day, and its report."""
    output = str(tmp_path_factory.mktemp("summaries"))
    arguments = ("--partition", PARTITION, "--limit", "40", "--output", output)
    return output, promptmill("run", "summarize_tickets", *arguments)


def test_every_ticket_gets_a_summary_and_a_price(summaries):
    _, report = summaries

    assert report["num_generations"] + report["num_rejects"] == report["num_rows"] == 40
    assert report["device_s"] > report["load_s"] > 0
    assert report["usd"] > 0
    assert report["num_output_tokens"] > 40
    assert 0 < report["num_cached_tokens"] < report["num_prompt_tokens"]


def test_the_bill_of_the_real_engine_adds_up(summaries):
    _, report = summaries
    lineage = promptmill("lineage", report["run_uri"])
    (attempt,) = lineage["attempts"]
    use = attempt["use"]
    batches = math.fsum(batch["device_s"] for batch in lineage["batches"])

    parts = use["load_s"] + use["idle_s"] + use["tail_idle_s"] + use["wasted_s"]
    assert batches + parts == pytest.approx(use["wall_s"], abs=1e-6)
    assert report["device_s"] == use["wall_s"]
    assert abs(lineage["difference_s"]) < 1e-6
    assert abs(lineage["difference_usd"]) < 1e-6


def test_summaries_are_text_and_tokens_are_counted(summaries):
    _, report = summaries
    rows = rows_at(report["run_uri"])

    assert all(row["text"].strip() and row["num_output_tokens"] > 0 for row in rows)
    assert all(row["ttft_s"] >= row["queue_s"] >= 0 for row in rows)
    assert (
        sum(r["num_output_tokens"] for r in rows if not r["is_fanned_out"])
        == (report["num_output_tokens"])
    )


def test_the_same_command_again_starts_no_engine(summaries):
    output, first = summaries
    arguments = ("--partition", PARTITION, "--limit", "40", "--output", output)
    second = promptmill("run", "summarize_tickets", *arguments)

    assert second["num_reused_batches"] == second["num_batches"] == first["num_batches"]
    assert (second["load_s"], second["device_s"], second["usd"]) == (0, 0, 0)


def test_verify_finds_a_flipped_byte_in_a_real_run(summaries):
    _, report = summaries
    promptmill("verify", report["run_uri"])
    part = sorted(Path(report["run_uri"]).glob("generations/*.parquet"))[0]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)

    found = promptmill("verify", report["run_uri"], code=1)
    assert part.name in json.dumps(found)
    content[len(content) // 2] ^= 1
    part.write_bytes(content)


@pytest.fixture(scope="module")
def labels(tmp_path_factory) -> list[dict]:
    """The reports of label_tickets over the first 20 tickets of two days, in one command."""
    output = str(tmp_path_factory.mktemp("labels"))
    days = ("--partition", "2026-11-02..2026-11-03", "--limit", "20")
    return promptmill("run", "label_tickets", *days, "--output", output)["runs"]


def test_every_ticket_gets_one_of_the_labels(labels):
    job = yaml.safe_load((ROOT / "jobs" / "label_tickets.yaml").read_text())
    choices = job["output"]["labels"]["choices"]

    for report in labels:
        assert report["num_generations"] == 20
        for row in rows_at(report["run_uri"]):
            shares = {one["key"]: one["value"] for one in row["label_probabilities"]}
            assert list(shares) == choices
            assert math.fsum(shares.values()) == pytest.approx(1)
            assert row["label"] == max(shares, key=shares.__getitem__)


def test_two_partitions_of_a_command_load_the_engine_once_and_both_bills_add_up(labels):
    first, second = labels

    assert second["load_s"] < 0.5 < first["load_s"]
    assert second["device_s"] > second["load_s"]
    for report in labels:
        assert abs(promptmill("lineage", report["run_uri"])["difference_s"]) < 1e-6


def public_job(tmp_path: Path, rows: pa.Table, **sections) -> str:
    pq.write_table(rows, tmp_path / "rows.parquet")
    fields = {
        "name": "public_texts",
        "input": {"uri": str(tmp_path / "rows.parquet"), "id_column": "id"},
        "model": {"id": "smollm2-135m-instruct"},
        "output": {"uri": str(tmp_path / "out"), **sections.pop("output", {})},
        **sections,
    }
    path = tmp_path / "public_texts.yaml"
    path.write_text(yaml.safe_dump(fields))
    return str(path)


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public test sets are not here")
@pytest.mark.parametrize("num_texts", [40, pytest.param(200, marks=pytest.mark.long)])
def test_news_texts_are_labelled_and_no_row_is_lost(num_texts, tmp_path):
    choices = ["World", "Sports", "Business", "Science"]
    job = public_job(
        tmp_path,
        pq.read_table(PUBLIC / "ag_news.parquet").slice(0, num_texts),
        prompt={"user": "{{ text }}\n\nIs this news about World, Sports, Business or Science?"},
        output={"labels": {"choices": choices}},
    )
    report = promptmill("run", job)
    rows = rows_at(report["run_uri"])

    assert report["num_generations"] == len({row["row_key"] for row in rows}) == num_texts
    assert {row["label"] for row in rows} <= set(choices)
    assert all(
        math.fsum(one["value"] for one in row["label_probabilities"]) == pytest.approx(1)
        for row in rows
    )


@pytest.mark.long
@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public test sets are not here")
def test_500_dialogues_are_summarized_and_no_row_is_lost(tmp_path):
    job = public_job(
        tmp_path,
        pq.read_table(PUBLIC / "dialogsum_dev.parquet"),
        prompt={"user": "{{ dialogue }}\n\nSummarize this dialogue in one sentence."},
        sampling={"max_tokens": 32},
    )
    report = promptmill("run", job)

    assert report["num_generations"] == report["num_rows"] == 500
    assert {row["row_key"] for row in rows_at(report["run_uri"])} == {
        f"dev_{i}" for i in range(500)
    }


@pytest.mark.long
@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public test sets are not here")
def test_a_second_day_of_dialogues_is_predicted_better_than_the_first(tmp_path):
    """60 dialogues each day; the model stops by itself."""
    dialogues = pq.read_table(PUBLIC / "dialogsum_dev.parquet")
    totals = []
    for day in range(2):
        job = public_job(
            tmp_path,
            dialogues.slice(60 * day, 60),
            prompt={"user": "{{ dialogue }}\n\nSummarize this dialogue in one sentence."},
            sampling={"max_tokens": 128},
        )
        report = promptmill("run", job)
        totals.append(promptmill("lineage", report["run_uri"], "--calibration")["total"])
    print(json.dumps(totals))

    first, second = totals
    assert first["num_requests"] == second["num_requests"] == 60
    assert second["mean_absolute_error"] < 0.5 * first["mean_absolute_error"]
    assert abs(second["bias"]) < 0.5 * abs(first["bias"])
