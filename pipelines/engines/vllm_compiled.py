"""What vLLM compiled at an earlier start, used again on a CPU. Imported by `vllm_loading` alone."""

from typing import Any, Literal


def keep_compiled() -> None:
    """Let vLLM load the model that it compiled and saved at an earlier start.

    vLLM 0.32 calls `finalize_loading` on what torch loaded, which only vLLM's own backend for
    GPUs has; a CPU's is torch's plain function. So it fails with "'function' object has no
    attribute 'finalize_loading'", and compiles again: 119 s of a start (AMD Zen 3, 2 cores). There
    is nothing to finalize. To be removed when vLLM asks whether the method is there.
    """
    import torch

    load = torch.compiler.load_compiled_function

    def loaded(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's own signature
        found = load(*arguments, **named)
        function = found._artifacts.compiled_fn  # pyright: ignore[reportFunctionMemberAccess]  # noqa: SLF001
        if not hasattr(function, "finalize_loading"):
            function.finalize_loading = _nothing
        return found

    torch.compiler.load_compiled_function = loaded


def _nothing(_config: object) -> None:
    """Do what is left to do: nothing."""


def compiled() -> Literal["no", "now", "before"]:
    """Return whether this process's model was compiled: at this start, or at an earlier one."""
    from vllm.compilation.counter import compilation_counter

    if compilation_counter.num_aot_artifacts_loaded:
        return "before"
    return "now" if compilation_counter.num_aot_compiles else "no"
