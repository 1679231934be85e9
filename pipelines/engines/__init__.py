"""The door to inference engines: what answers requests, and never knows what a batch is for.

`Engine` is the promise (base.py). `VllmEngine` keeps it with vLLM in a child process
(vllm_engine.py here, vllm_child.py there), `EchoEngine` without any model (echo.py). No
module that a parent imports loads vllm or torch; only `vllm_child` does, when it runs.
"""

from pipelines.engines.base import Engine
from pipelines.engines.echo import EchoEngine
from pipelines.engines.echo_faults import EchoFaults
from pipelines.engines.vllm_engine import VllmEngine, open_vllm

__all__ = ["EchoEngine", "EchoFaults", "Engine", "VllmEngine", "open_vllm"]
