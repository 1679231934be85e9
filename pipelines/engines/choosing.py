"""Which settings vLLM is started with: pure functions of the device, the model and the plan.

Every value comes with its reason; what the job file says wins.
"""

from pipelines.engines.basis import Basis, Evidence
from pipelines.engines.cpu_settings import cpu_settings
from pipelines.engines.gpu_settings import gpu_settings
from pipelines.engines.model_size import model_size
from pipelines.engines.settings import EngineDevice, EngineSettings
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
    basis = Basis(
        device=device,
        model=model_size(checkpoint),
        context_length=max_model_len,
        wanted=overrides or EngineOverrides(),
        known=evidence or Evidence(),
    )
    return cpu_settings(basis) if device.kind == "cpu" else gpu_settings(basis)
