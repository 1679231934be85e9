"""Whether to compile the model at the start: it costs seconds once, and saves some of each.

Compiled, g seconds of eager steps take g / gain. That pays where g x (1 - 1 / gain) is more
than what compiling adds to the load.
"""

from dataclasses import dataclass

from pipelines.engines.settings import Chosen, EngineDevice
from schemas.tunings import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEffect:
    """What compiling does: `gain` is compiled over eager tokens/s, `extra_s` longer to load."""

    gain: float
    extra_s: float
    source: str


AVX512_CPU = CompileEffect(gain=1.23, extra_s=45.0, source="measured on 2 cores of AMD Zen 5")
OTHER_CPU = CompileEffect(gain=1.0, extra_s=119.0, source="measured on 2 cores of AMD Zen 3")
GPU = CompileEffect(gain=1.5, extra_s=60.0, source="a guess: no GPU was measured")
"""Without CUDA graphs, which come with compiling, a decode step waits for Python."""


def compile_effect(device: EngineDevice, tuning: Tuning | None) -> CompileEffect:
    """Return what compiling does here: as it was tuned, else as on a machine of the kind."""
    eager = tuning and tuning.best(is_compiled=False)
    compiled = tuning and tuning.best(is_compiled=True)
    if tuning is not None and eager is not None and compiled is not None:
        return CompileEffect(
            gain=compiled.tokens_per_s / eager.tokens_per_s,
            extra_s=compiled.load_s - eager.load_s,
            source=f"tuned here on {tuning.tuned_at[:10]}",
        )
    if device.kind == "cuda":
        return GPU
    has_avx512 = any(flag.startswith("avx512") for flag in device.flags or ())
    return AVX512_CPU if has_avx512 else OTHER_CPU


def compile_choice(
    device: EngineDevice, forecast_s: float | None, tuning: Tuning | None
) -> Chosen[bool]:
    """Return whether to compile for `forecast_s` seconds of eager steps; None: not known.

    Where nothing is known of the length, a GPU compiles and a CPU does not.
    """
    effect = compile_effect(device, tuning)
    known = f"gain {effect.gain - 1:+.0%}, {effect.extra_s:.0f} s longer to load ({effect.source})"
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
        reason=f"{forecast_s:.0f} s of eager steps are forecast, compiling {verb} {saved_s:.0f} s; "
        + known,
    )
