"""What a job file may say about its engine: how it is started, never what it answers."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.partitions import Section

KvCacheDtype = Literal["auto", "fp8"]
"""How keys and values are kept: `auto` as the model computes them, `fp8` in half the memory."""


class EngineOverrides(Section):
    """Throughput settings; None leaves the choice to promptmill. They never change identity.

    `promptmill plan JOB --explain` shows what is chosen for each, and why.
    """

    max_num_seqs: int | None = Field(default=None, ge=1, description="requests in an engine step")
    max_num_batched_tokens: int | None = Field(
        default=None, ge=32, description="tokens computed in an engine step"
    )
    block_size: int | None = Field(
        default=None, ge=8, le=1024, multiple_of=8, description="tokens in a block of the KV cache"
    )
    kv_cache_gb: Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)] | None = Field(
        default=None, description="memory for keys and values of each device, in 10^9 bytes"
    )
    kv_cache_dtype: KvCacheDtype | None = None
    compile: bool | None = Field(
        default=None, description="compile the model at the start: slower to load, faster after"
    )
