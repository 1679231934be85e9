"""Whether an engine that is running serves the next need as well, or another has to be started."""

from pipelines.engines.basis import JOB_FILE
from pipelines.engines.settings import Chosen, EngineSettings

_MAX_RATIO = 2.0
"""Sequences and tokens of a step may differ by this factor: a start costs more than that."""


def misfit(running: EngineSettings, wanted: EngineSettings) -> str | None:
    """Return why an engine with the settings `running` does not serve `wanted`; None if it does.

    What the job file says has to be so. Compiled serves who wanted eager, not the other way
    round: there compiling pays.
    """
    here, there = running.chosen(), wanted.chosen()
    for name, one in there.items():
        if one.reason == JOB_FILE and one.value != here[name].value:
            return f"the job file wants {name} {one.value}, it has {here[name].value}"
    for name in ("dtype", "kv_cache_dtype"):
        if here[name].value != there[name].value:
            return f"{name} {there[name].value} is wanted, it has {here[name].value}"
    if wanted.max_model_len.value > running.max_model_len.value:
        return f"{wanted.max_model_len.value:,} tokens are wanted, it has room for fewer"
    if wanted.compile.value and not running.compile.value:
        return f"compiling pays: {wanted.compile.reason}"
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if not _is_similar(here[name], there[name]):
            return f"{name} {there[name].value} is wanted, it has {here[name].value}"
    cache, room = wanted.kv_cache_bytes.value, running.kv_cache_bytes.value
    if cache is not None and room is not None and cache > _MAX_RATIO * room:
        return f"a KV cache of {cache:,} bytes is wanted, it has {room:,}"
    return None


def _is_similar(running: Chosen[object], wanted: Chosen[object]) -> bool:
    here, there = running.value, wanted.value
    if not isinstance(here, int) or not isinstance(there, int):
        return here == there
    return here <= _MAX_RATIO * there and there <= _MAX_RATIO * here
