"""`promptmill model build`: a model's weights, made before the first run needs them."""

import dataclasses
from typing import TYPE_CHECKING, get_args

from jobs.commands.ending import Ending
from jobs.commands.texts import pairs, size
from jobs.display import display
from jobs.settings import read_settings
from schemas.errors import SettingsError
from schemas.names import nearest

if TYPE_CHECKING:
    from schemas.checkpoints import Weights


def build_model(model_id: str, weights: str, revision: str | None) -> Ending:
    """Find the model and make these weights of it, once; say where they lie.

    Raises:
        SettingsError: no such model, or it has no such weights.
        TryElsewhereError: it could not be downloaded or made on this machine.
    """
    settings = read_settings()
    kind = _weights(weights)
    with display() as shown:
        from pipelines.quantize import prepare  # the model's libraries take seconds to load

        made = prepare(
            model_id,
            weights=kind,
            revision=revision,
            cache_dir=settings.cache_dir,
            report=shown.note,
        )
    num_bytes = sum(file.num_bytes for file in made.files)
    rows = [
        ("model", made.model_id),
        ("revision", made.model_revision or "-"),
        ("weights", f"{made.weights} ({made.quantization or 'not quantized'})"),
        ("size", f"{len(made.files)} files, {size(num_bytes)}"),
        ("weights hash", made.weights_hash),
        ("folder", made.path),
    ]
    return Ending(
        fields={**dataclasses.asdict(made), "num_bytes": num_bytes},
        show=lambda console: console.print(pairs("model", rows)),
    )


def _weights(name: str) -> "Weights":
    from schemas.checkpoints import Weights

    for kind in get_args(Weights):
        if name == kind:
            return kind
    raise SettingsError(f"no weights `{name}`{nearest(name, get_args(Weights))}")
