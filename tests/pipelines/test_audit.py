import json

import pytest

from pipelines.audit import audit
from pipelines.ledger import MANIFEST_KEY
from pipelines.run import run
from pipelines.storage import open_store
from schemas.errors import VerificationError


@pytest.fixture
def sealed(write_input, make_job, make_tools):
    """The store of a finished run of 60 rows, two of them rejects."""
    text = [f"ticket {i} about shipping" for i in range(58)] + [None, " "]
    write_input({"id": [f"r{i}" for i in range(60)], "text": text})
    return open_store(run(make_job(output={"max_batch_tokens": 400}), make_tools()).run_uri)


def test_a_sound_run_has_no_fault(sealed):
    report = audit(sealed)

    assert (report.faults, report.num_rows, report.is_input_checked) == ((), 60, True)


def test_one_flipped_byte_in_any_part_is_named(sealed):
    parts = [item.key for kind in ("generations", "rejects") for item in sealed.list(kind)]
    assert len(parts) > 5

    for key in parts:
        content = sealed.get(key)
        middle = len(content) // 2
        sealed.put(key, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        assert [fault for fault in audit(sealed).faults if fault.startswith(f"{key}: bytes differ")]
        sealed.put(key, content)


@pytest.mark.parametrize("folder", ["generations", "rejects", "commits", "plan"])
def test_an_absent_file_is_named(folder, sealed):
    key = next(item.key for item in sealed.list(folder) if not item.key.endswith("plan.json"))
    sealed.delete(key)

    assert any(key.split("/")[-1] in fault for fault in audit(sealed).faults)


def test_a_commit_that_differs_from_the_manifest_is_named(sealed):
    key = sealed.list("commits")[0].key
    record = json.loads(sealed.get(key))
    sealed.put(key, json.dumps({**record, "epoch": 99}).encode())

    assert any(fault.startswith(f"{key}: differs") for fault in audit(sealed).faults)


def test_counts_that_do_not_add_up_are_told(sealed):
    manifest = json.loads(sealed.get(MANIFEST_KEY))
    sealed.put(MANIFEST_KEY, json.dumps({**manifest, "num_rows": 61}).encode())

    assert any("61 rows, counted 60" in fault for fault in audit(sealed).faults)


def test_a_changed_lineage_table_is_told(sealed):
    sealed.put("lineage.parquet", b"PAR1")

    assert any(fault.startswith("lineage.parquet") for fault in audit(sealed).faults)


def test_an_input_that_changed_is_not_blamed_on_the_run(sealed, write_input):
    write_input({"id": ["other"], "text": ["x"]})

    report = audit(sealed)
    assert (report.faults, report.is_input_checked) == ((), False)


def test_a_run_that_is_not_finished_cannot_be_audited(sealed):
    sealed.delete(MANIFEST_KEY)

    with pytest.raises(VerificationError, match="not finished"):
        audit(sealed)
    with pytest.raises(VerificationError, match="no run"):
        audit(sealed.child("nowhere"))
