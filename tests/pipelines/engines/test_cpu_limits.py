"""What is kept of a CPU's limits. The real measurement is in test_real_engine.py's session."""

import json
from pathlib import Path

import pytest

from pipelines.engines.cpu_limits import cpu_limits, kept_limits
from pipelines.engines.settings import Chosen, EngineDevice, EngineSettings


def chosen(value):
    return Chosen(value=value, reason="a test")


def settings(*, dtype="float32", num_cores=2) -> EngineSettings:
    return EngineSettings(
        device=EngineDevice(
            kind="cpu",
            name="a CPU",
            cpu_ids=tuple(range(num_cores)),
            free_memory_bytes=2**34,
            flags=("avx2",),
        ),
        max_model_len=chosen(512),
        max_num_seqs=chosen(8),
        max_num_batched_tokens=chosen(512),
        block_size=chosen(32),
        kv_cache_bytes=chosen(2**28),
        kv_cache_dtype=chosen("auto"),
        dtype=chosen(dtype),
        compile=chosen(False),
    )


def child(folder: Path, answer: str) -> dict[str, object]:
    """A module that answers its parent with this frame, and counts its starts."""
    (folder / "stands_in.py").write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from pipelines.engines.child_side import leave, take_pipes\n"
        "pipes = take_pipes(int(sys.argv[1]))\n"
        "with Path(os.environ['STARTS']).open('a') as starts:\n"
        "    starts.write('x')\n"
        "asked = pipes.inbox.read(is_blocking=True)[0]\n"
        f"{answer}\n"
        "leave(0)\n"
    )
    environment = {"PYTHONPATH": str(folder), "STARTS": str(folder / "starts")}
    return {"environment": environment, "module": "stands_in", "busy": lambda: 0.0}


def test_limits_are_measured_once_and_kept_with_where_they_are_from(tmp_path):
    told = child(tmp_path, "pipes.send(('limits', 3.0, 2.0, 1.0))")

    first = cpu_limits(settings(), cache_dir=tmp_path / "cache", **told)
    second = cpu_limits(settings(), cache_dir=tmp_path / "cache", **told)

    assert first == second == kept_limits(settings(), tmp_path / "cache")
    assert (first.int8_ops_per_s, first.float_ops_per_s, first.bytes_per_s) == (3.0, 2.0, 1.0)
    assert first.source.startswith("measured 20")
    assert "float32 products, memory copy; a CPU, 2 cores" in first.source
    assert (tmp_path / "starts").read_text() == "x"


def test_limits_measured_beside_other_work_serve_until_a_quiet_start(tmp_path):
    """They come out too low: kept for ever, every fraction of them would flatter us."""
    told = child(tmp_path, "pipes.send(('limits', 3.0, 2.0, 1.0))")
    beside, quiet = {**told, "busy": lambda: 0.5}, told

    first = cpu_limits(settings(), cache_dir=tmp_path / "cache", **beside)
    assert first.source.endswith("2 cores, beside other work")
    assert cpu_limits(settings(), cache_dir=tmp_path / "cache", **beside) == first

    second = cpu_limits(settings(), cache_dir=tmp_path / "cache", **quiet)
    assert second.source.endswith("2 cores")
    assert cpu_limits(settings(), cache_dir=tmp_path / "cache", **quiet) == second
    assert (tmp_path / "starts").read_text() == "xx"


@pytest.mark.parametrize("other", [{"dtype": "auto"}, {"num_cores": 1}], ids=["type", "cores"])
def test_another_float_type_or_number_of_cores_is_measured_anew(other, tmp_path):
    told = child(tmp_path, "pipes.send(('limits', 3.0, 2.0, 1.0))")
    cpu_limits(settings(), cache_dir=tmp_path / "cache", **told)

    assert kept_limits(settings(**other), tmp_path / "cache") is None


def test_a_damaged_record_counts_as_none(tmp_path):
    told = child(tmp_path, "pipes.send(('limits', 3.0, 2.0, 1.0))")
    cpu_limits(settings(), cache_dir=tmp_path, **told)
    (record,) = (tmp_path / "devices").glob("*.json")
    record.write_text(json.dumps({"int8_ops_per_s": 1.0}))

    assert kept_limits(settings(), tmp_path) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [("pipes.send(('failed', 'no such kernel'))", "no such kernel"), ("leave(3)", "exit code 3")],
    ids=["failed", "died"],
)
def test_limits_that_cannot_be_measured_are_not_known_and_the_reason_is_told(answer, why, tmp_path):
    notes: list[str] = []
    told = child(tmp_path, answer)

    found = cpu_limits(settings(), cache_dir=tmp_path / "cache", on_note=notes.append, **told)

    assert found is None
    assert why in notes[0]
    assert kept_limits(settings(), tmp_path / "cache") is None
