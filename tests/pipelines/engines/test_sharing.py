from dataclasses import replace

import pytest

from pipelines.engines.basis import JOB_FILE
from pipelines.engines.settings import Chosen
from pipelines.engines.sharing import misfit
from tests.pipelines.engines.chosen_settings import some_settings


def with_value(name, value, reason="for a test"):
    return replace(some_settings(), **{name: Chosen(value=value, reason=reason)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model_len", 256),
        ("max_num_seqs", 16),
        ("max_num_batched_tokens", 300),
        ("kv_cache_bytes", 10**6),
        ("block_size", 16),
    ],
)
def test_an_engine_serves_who_wants_no_more_than_it_has_and_about_its_size(name, value):
    assert misfit(some_settings(), with_value(name, value)) is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("max_model_len", 1024, "room for fewer"),
        ("max_num_seqs", 32, "max_num_seqs 32 is wanted, it has 8"),
        ("max_num_batched_tokens", 4096, "max_num_batched_tokens 4096"),
        ("kv_cache_bytes", 10**9, "a KV cache of 1,000,000,000 bytes"),
        ("kv_cache_dtype", "fp8", "kv_cache_dtype fp8"),
        ("compile", True, "compiling pays"),
    ],
)
def test_what_it_does_not_have_is_named(name, value, told):
    assert told in (misfit(some_settings(), with_value(name, value)) or "")


def test_what_the_job_file_says_has_to_be_exactly_so():
    assert misfit(some_settings(), with_value("max_num_seqs", 8, JOB_FILE)) is None
    assert "job file" in (misfit(some_settings(), with_value("max_num_seqs", 7, JOB_FILE)) or "")


def test_a_compiled_engine_serves_who_wanted_an_eager_one():
    assert misfit(with_value("compile", value=True), some_settings()) is None
