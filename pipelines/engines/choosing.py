"""Which settings vLLM is started with: pure functions of the device, the model and the plan.

Every value comes with its reason; what the job file says wins.
"""

from dataclasses import replace

from pipelines.engines.basis import JOB_FILE, Basis, Evidence
from pipelines.engines.compiling import compile_choice, compile_effect
from pipelines.engines.cpu_settings import cpu_settings
from pipelines.engines.gpu_settings import gpu_settings
from pipelines.engines.model_size import model_size
from pipelines.engines.settings import Chosen, EngineDevice, EngineSettings
from schemas.checkpoints import Checkpoint
from schemas.engine_overrides import EngineOverrides


def engine_settings(
    device: EngineDevice,
    checkpoint: Checkpoint,
    *,
    max_model_len: int,
    overrides: EngineOverrides | None = None,
    evidence: Evidence | None = None,
) -> EngineSettings:
    """Return how to start vLLM for requests of at most `max_model_len` tokens.

    Raises:
        SettingsError: the KV cache of one such request does not fit into a CPU's free memory.
    """
    known = evidence or Evidence()
    basis = Basis(
        device=device,
        model=model_size(checkpoint),
        context_length=max_model_len,
        wanted=overrides or EngineOverrides(),
        known=known,
        compile=Chosen(value=True, reason="to see what would be compiled"),
    )
    wanted = basis.wanted.compile
    if wanted is not None:
        return _settings(replace(basis, compile=Chosen(value=wanted, reason=JOB_FILE)))
    graph = _settings(basis).graph
    effect = compile_effect(device, known.tuning, known.starts, graph=graph)
    return _settings(replace(basis, compile=compile_choice(device, known.forecast_s, effect)))


def _settings(basis: Basis) -> EngineSettings:
    return cpu_settings(basis) if basis.device.kind == "cpu" else gpu_settings(basis)
