"""Whether to compile the model at the start: it costs seconds once, and saves some of each.

Compiled, g seconds of eager steps take g / gain. That pays where g x (1 - 1 / gain) is more
than what compiling adds to the load: minutes at first, seconds where an earlier start on this
machine compiled the same and left it in vLLM's cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from pipelines.engines.settings import Chosen, EngineDevice
from schemas.engine_records import EngineStart
from schemas.tunings import Tuning

KEPT_EXTRA_S = 12.0
"""What a kept model adds to the load, where no start has shown it yet (docs/decisions/0010)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEffect:
    """What compiling does: `gain` is compiled over eager tokens/s, `extra_s` longer to load."""

    gain: float
    extra_s: float
    source: str


AVX512_CPU = CompileEffect(gain=1.23, extra_s=45.0, source="measured on 2 cores of AMD Zen 5")
OTHER_CPU = CompileEffect(gain=1.2, extra_s=120.0, source="measured on 2 cores of AMD Zen 3")
GPU = CompileEffect(gain=1.5, extra_s=60.0, source="a guess: no GPU was measured")
"""Without CUDA graphs, which come with compiling, a decode step waits for Python."""


def compile_effect(
    device: EngineDevice, tuning: Tuning | None, starts: Sequence[EngineStart], *, graph: str
) -> CompileEffect:
    """Return what compiling does here: as it was tuned, else as on a machine of the kind.

    `starts` are earlier ones on this machine; `graph` is what would be compiled.
    """
    usual = _tuned_effect(tuning) or _usual_effect(device)
    same = [start for start in starts if start.is_compiled and start.graph == graph]
    if not same:
        return usual
    kept = [start.load_s for start in same if start.was_kept]
    eager = [start.load_s for start in starts if not start.is_compiled]
    extra_s = max(0.0, median(kept) - median(eager)) if kept and eager else KEPT_EXTRA_S
    return replace(usual, extra_s=extra_s, source=f"{usual.source}; compiled here before, and kept")


def _tuned_effect(tuning: Tuning | None) -> CompileEffect | None:
    eager = tuning and tuning.best(is_compiled=False)
    compiled = tuning and tuning.best(is_compiled=True)
    if tuning is None or not eager or not compiled:
        return None
    return CompileEffect(
        gain=compiled.tokens_per_s / eager.tokens_per_s,
        extra_s=max(0.0, compiled.load_s - eager.load_s),
        source=f"tuned here on {tuning.tuned_at[:10]}",
    )


def _usual_effect(device: EngineDevice) -> CompileEffect:
    if device.kind == "cuda":
        return GPU
    has_avx512 = any(flag.startswith("avx512") for flag in device.flags or ())
    return AVX512_CPU if has_avx512 else OTHER_CPU


def compile_choice(
    device: EngineDevice, forecast_s: float | None, effect: CompileEffect
) -> Chosen[bool]:
    """Return whether to compile for `forecast_s` seconds of eager steps; None: not known.

    Where nothing is known of the length, a GPU compiles and a CPU does not.
    """
    known = f"{effect.gain - 1:+.0%} tokens/s, {effect.extra_s:.0f} s longer to load"
    known = f"{known} ({effect.source})"
    if effect.gain <= 1.0:
        return Chosen(value=False, reason=f"compiling is no faster: {known}")
    if forecast_s is None:
        is_gpu = device.kind == "cuda"
        return Chosen(value=is_gpu, reason=f"how long it will run is not known; {known}")
    saved_s = forecast_s * (1 - 1 / effect.gain)
    is_paying = saved_s > effect.extra_s
    verb = "saves" if is_paying else "would save"
    return Chosen(
        value=is_paying,
        reason=f"{forecast_s:.0f} s of eager steps are forecast, compiling {verb} {saved_s:.0f} s: "
        + known,
    )
