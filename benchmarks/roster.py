"""Who takes part: each contender's script, weights, environment and Python.

"plain" is what a user's shell has: nothing preloaded, no thread or vLLM settings. "ours" is the
environment and the arguments that promptmill starts its own engine with.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.data_sets import ROOT
from jobs.engine_choice import engine_device, settings_for
from jobs.settings import read_settings
from jobs.tools import tools_for
from pipelines import devices
from pipelines.attempt import engine_need
from pipelines.engines.environment import child_environment, find_preloads
from pipelines.engines.settings import engine_arguments
from pipelines.run import expect, make_plan
from pipelines.work import prepare
from schemas.checkpoints import Weights
from schemas.job_spec import JobSpec

RAY_PYTHON = ROOT / ".venv-bench" / "bin" / "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to answer the rows. `engine` are arguments for its script, beside the model."""

    name: str
    title: str
    script: str
    weights: Weights = "int8"
    setting: Literal["plain", "ours"] = "plain"
    workloads: tuple[str, ...] = ("w1", "w2", "w3", "w4", "w5")
    python: Path | None = None
    engine: tuple[tuple[str, str], ...] = ()


CONTENDERS = (
    Contender(name="promptmill", title="promptmill", script="promptmill"),
    Contender(name="llm-defaults", title="`LLM.generate`, all defaults", script="llm_generate"),
    Contender(
        name="llm-ours",
        title="`LLM.generate`, promptmill's environment, settings and kernels",
        script="llm_generate",
        setting="ours",
    ),
    Contender(
        name="engine-loop",
        title="bare engine loop, promptmill's environment, settings, kernels and order",
        script="engine_loop",
        setting="ours",
        workloads=("w4",),
    ),
    Contender(
        name="run-batch",
        title="`vllm run-batch`",
        script="run_batch",
        workloads=("w1", "w2", "w4"),
    ),
    Contender(
        name="ray-data",
        title="Ray Data, `map_batches` over a vLLM actor",
        script="ray_data",
        python=RAY_PYTHON,
        workloads=("w1", "w2", "w4"),
    ),
    Contender(
        name="transformers",
        title="transformers, static batches of 32, FP32",
        script="static_batches",
        weights="bf16",
        engine=(("dtype", "float32"),),
        workloads=("w1", "w4"),
    ),
    Contender(
        name="promptmill-bf16",
        title="promptmill, BF16 weights",
        script="promptmill",
        weights="bf16",
        workloads=("w1", "w4"),
    ),
    Contender(
        name="llm-defaults-bf16",
        title="`LLM.generate`, all defaults, BF16 weights",
        script="llm_generate",
        weights="bf16",
        workloads=("w4",),
    ),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}

_PLAIN_ON_CPU = {"gpu_memory_utilization": 0.3}
"""The one default that is not kept: vLLM 0.32 wants 92 % of a CPU machine's memory to be free
and else does not start. The KV cache is larger than it need be either way."""

_OF_A_SETTING = ("VLLM_", "OMP_", "KMP_", "MKL_", "TORCH", "LD_PRELOAD", "HF_", "MALLOC_")


def plain_environment() -> dict[str, str]:
    """Return this process's environment without anything that sets an engine up.

    Nothing reports usage to its makers; that changes no speed.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_SETTING)}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
    }


def plain_engine(contender: Contender) -> dict[str, Any]:
    """Return the arguments of a contender's script that does without promptmill's."""
    is_cpu = devices.describe().kind == "cpu"
    return {**(_PLAIN_ON_CPU if is_cpu else {}), **dict(contender.engine)}


def our_engine(job: JobSpec) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the environment and vLLM arguments that promptmill would start this job with.

    They depend on the plan, so the job is planned; the job's output must be a folder that is
    used for nothing else.
    """
    installation = read_settings()
    work = prepare(job, tools_for(installation))
    made = make_plan(work)
    need = engine_need(work, made, made.batches, expect(work, made.batches))
    settings = settings_for(need, engine_device(devices.describe()), installation.cache_dir)
    preloads, _ = find_preloads() if settings.device.kind == "cpu" else ((), ())
    arguments = engine_arguments(work.checkpoint, settings)
    return child_environment(plain_environment(), settings, preloads), arguments
