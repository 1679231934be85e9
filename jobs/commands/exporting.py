"""`promptmill export`: a run's rows beside the columns of its input, in one file."""

import dataclasses
from pathlib import Path

from jobs.commands.ending import Ending
from jobs.commands.texts import count
from schemas.errors import SettingsError


def export_run(uri: str, target: str, *, with_input: bool, is_long: bool) -> Ending:
    """Write the run at `uri`, or the current run of the output there, to the file `target`.

    Raises:
        SettingsError: see `pipelines.export.export`, or `target` is not a local file.
        VerificationError: the run is not finished, or a part is damaged.
    """
    from pipelines.export import export
    from pipelines.storage import open_store

    if "://" in target:
        raise SettingsError(f"--to {target}: export writes a local file; copy it from there")
    report = export(
        open_store(uri),
        Path(target).absolute(),
        with_input=with_input,
        form="long" if is_long else "wide",
    )
    told = (
        f"{count(report.num_rows)} rows ({count(report.num_generations)} generations, "
        f"{count(report.num_rejects)} rejects) in {report.path}\n"
        f"columns: {', '.join(report.columns)}"
    )
    return Ending(
        fields=dataclasses.asdict(report),
        show=lambda console: console.print(told, soft_wrap=True),
    )
