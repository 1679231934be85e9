"""promptmill's own kernels for contenders that are given its environment."""

import os


def register_ours() -> None:
    """Offer vLLM the kernels for which promptmill's environment switches vLLM's off."""
    if os.environ.get("VLLM_DISABLED_KERNELS"):
        from pipelines.engines import vllm_int8

        vllm_int8.register()
