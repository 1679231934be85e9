"""Loading vLLM inside its process, and what it has become. Imported by `vllm_child` alone."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pipelines.engines import vllm_int8
from pipelines.engines.vllm_compiled import compiled, keep_compiled
from pipelines.engines.vllm_steps import StepRecorder, counting_scheduler

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.metrics.loggers import StatLoggerManager

MIN_VLLM = (0, 32)
"""Older ones lack `logprob_token_ids` and the security fixes that came before it."""


def load(arguments: dict[str, Any], recorder: StepRecorder) -> "LLMEngine":
    """Return vLLM's engine with its own choice of scheduler, extended to count.

    The first `LLMEngine.step` with a `logger_manager` calls it for every step: the recorder
    takes the place of vLLM's, which would feed Prometheus.
    """
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.exceptions import VLLMError
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine

    if tuple(map(int, vllm.__version__.split(".")[:2])) < MIN_VLLM:
        raise ImportError(f"vLLM {vllm.__version__} is installed, at least {MIN_VLLM} is needed")
    if current_platform.is_cpu():
        vllm_int8.register()
        keep_compiled()
    context = UsageContext.LLM_CLASS
    try:
        config = EngineArgs(**arguments).create_engine_config(context)
        chosen = config.scheduler_config.get_scheduler_cls()
        config.scheduler_config.scheduler_cls = counting_scheduler(chosen, recorder.count)
        engine = LLMEngine.from_vllm_config(config, usage_context=context)
    except VLLMError as error:
        raise ValueError(str(error)) from error
    engine.logger_manager = cast("StatLoggerManager", recorder)
    return engine


def limit(engine: "LLMEngine", *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
    """Let a step hold no more than this, and forget cached prompts; nothing may be running.

    Not more than the engine was started with: its buffers are of that size.
    """
    scheduler: Any = cast("Any", engine.engine_core).engine_core.scheduler
    config = engine.vllm_config.scheduler_config
    num_seqs = min(max_num_seqs, config.max_num_seqs)
    scheduler.max_num_running_reqs = scheduler.max_num_active_reqs = num_seqs
    scheduler.max_num_scheduled_tokens = min(max_num_batched_tokens, config.max_num_batched_tokens)
    engine.reset_prefix_cache()


def facts(engine: "LLMEngine") -> dict[str, Any]:
    """Return what the engine has become, in plain values."""
    import torch
    import vllm
    from vllm import envs

    config = engine.vllm_config
    cache, scheduler, model = config.cache_config, config.scheduler_config, config.model_config
    return {
        "engine_version": vllm.__version__,
        "max_model_len": model.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "kv_capacity_tokens": (cache.num_gpu_blocks or 0) * cache.block_size,
        "memory_bytes": _memory_bytes(),
        "ready_at": time.monotonic(),
        "settings": {
            "torch": torch.__version__,
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": str(model.quantization),
            "replaced_kernels": ",".join(envs.VLLM_DISABLED_KERNELS),
            "max_num_batched_tokens": str(scheduler.max_num_batched_tokens),
            "block_size": str(cache.block_size),
            "enforce_eager": str(model.enforce_eager),
            "compiled": compiled(),
            "async_scheduling": str(scheduler.async_scheduling),
            "tensor_parallel_size": str(config.parallel_config.tensor_parallel_size),
            "num_threads": str(torch.get_num_threads()),
        },
    }


def _memory_bytes() -> int:
    """Return what is held: of the first GPU's memory by anyone, or of the machine's by us."""
    import torch

    if torch.cuda.is_available():
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        return total_bytes - free_bytes
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmRSS")
