"""Engine records: what this machine knows of an engine from earlier starts and tunings."""

from dataclasses import dataclass

from schemas.tunings import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKey:
    """What a record holds for: these weights on this device with this engine."""

    weights_hash: str
    device_name: str
    num_devices: int
    engine_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """One start: whether it compiled, or loaded what an earlier start had compiled.

    `graph` names the settings that a compiled model is good for; others compile anew.
    """

    graph: str
    is_compiled: bool
    was_kept: bool
    load_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecord:
    """The last starts, oldest first, and the last tuning of each job."""

    key: EngineKey
    starts: tuple[EngineStart, ...] = ()
    tunings: tuple[Tuning, ...] = ()
