"""`promptmill run`: answer every prompt of a job's input once, and say how it went."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commands.choice import Choice, chosen_job
from jobs.commands.ending import Ending, printable
from jobs.commands.texts import codes, count, grid, of_limit, off, pairs, rate, seconds, told, usd
from jobs.display import Display, display
from jobs.rejects import too_many_rejects
from jobs.settings import Settings, read_settings
from schemas.forecasts import Forecast
from schemas.job_spec import JobSpec
from schemas.runs import RunReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from jobs.engine_pool import EnginePool

_NUM_SAMPLES = 3
_SAMPLE_CHARACTERS = 200


def run_job(choice: Choice) -> Ending:
    """Run the chosen job to its end.

    Raises:
        PromptmillError: see `pipelines.run.run`.
    """
    settings = read_settings()
    job = chosen_job(choice, settings)
    with display() as shown:
        from pipelines.export import samples
        from pipelines.storage import open_store

        report = run_once(choice, job, settings, shown)
        shown_samples = samples(open_store(report.run_uri), _NUM_SAMPLES)

    def show(console: "Console") -> None:
        console.print(pairs(f"{job.name} is done", _rows(report)))
        if report.forecast is not None and report.forecast.seconds:
            console.print(_forecast_table(report, report.forecast))
        _show_samples(console, shown_samples)
        console.print(f"outputs: {report.run_uri}", soft_wrap=True)
        console.print(_said_of_reuse(report), soft_wrap=True)

    return Ending(
        fields=dataclasses.asdict(report),
        show=show,
        fault=too_many_rejects(report, job.limits.max_rejects),
    )


def _tell(shown: Display, forecast: Forecast) -> None:
    for text in told(forecast):
        shown.note(text)


def run_once(
    choice: Choice,
    job: JobSpec,
    settings: Settings,
    shown: Display,
    pool: "EnginePool | None" = None,
) -> RunReport:
    """Run the job, with an engine from `pool` where there is one, and return its report.

    Raises:
        PromptmillError: see `pipelines.run.run`.
    """
    from jobs.tools import tools_for  # the model's libraries take seconds to load
    from pipelines.run import run

    tools = tools_for(
        settings,
        engine=choice.engine_kind(settings),
        pool=pool,
        on_progress=shown.show,
        on_forecast=lambda forecast: _tell(shown, forecast),
        on_note=shown.note,
        engine_log=None if pool else new_log(settings, shown),
    )
    return run(job, tools, partition=choice.partition, limit=choice.limit)


def new_log(settings: Settings, shown: Display) -> Path | None:
    """Return where the engine writes what would tear the live line; the last run's is gone."""
    if not shown.is_live:
        return None
    log = settings.cache_dir / "engine.log"
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    return log


def _rows(report: RunReport) -> list[tuple[str, str]]:
    rejects = f"  ({codes(report.rejects_by_code)})" if report.num_rejects else ""
    tokens = (
        f"{count(report.num_prompt_tokens)} prompt ({count(report.num_cached_tokens)} cached), "
        f"{count(report.num_output_tokens)} output"
    )
    return [
        ("rows", count(report.num_rows)),
        ("generations", count(report.num_generations)),
        ("rejects", count(report.num_rejects) + rejects),
        ("requests", count(report.num_requests)),
        ("batches", f"{count(report.num_batches)}, {count(report.num_reused_batches)} reused"),
        ("tokens", tokens),
        (
            "seconds",
            f"{report.wall_s:.1f} (load {report.load_s:.1f}, generate {report.generate_s:.1f})",
        ),
        ("speed", f"{rate(report.total_tokens_per_s)}, output {rate(report.output_tokens_per_s)}"),
        ("of the device's limit", of_limit(report.fraction_of_limit, report.bound_by)),
        ("saved", _saved(report)),
        ("device-seconds", f"{report.device_s:.1f} (all attempts {report.run_device_s:.1f})"),
        ("USD", f"{usd(report.usd)} (all attempts {usd(report.run_usd)})"),
    ]


def _forecast_table(report: RunReport, forecast: Forecast) -> "Table":
    """Return what was expected of this invocation's engine beside what came."""
    time_error = off(report.forecast_error)
    expected, came = forecast.output_tokens or 0, report.num_new_output_tokens
    return grid(
        ("", "forecast", "came", "off by"),
        [
            ["device held", seconds(forecast.seconds), seconds(report.held_s), time_error],
            ["USD", usd(forecast.usd), usd(report.usd), time_error],
            ["output tokens", count(expected), count(came), off(report.output_tokens_error)],
        ],
    )


def _saved(report: RunReport) -> str:
    return (
        f"{count(report.num_shared_tokens)} tokens of equal rows ({usd(report.saved_dedup_usd)}), "
        f"{count(report.num_cached_tokens)} of equal beginnings ({usd(report.saved_prefix_usd)})"
    )


def _said_of_reuse(report: RunReport) -> str:
    reused, batches = report.num_reused_batches, report.num_batches
    if batches and reused == batches:
        return f"all {count(batches)} batches were committed before; no engine was started"
    if reused:
        return f"{count(reused)} of {count(batches)} batches were committed before and are reused"
    return f"check it: promptmill verify {report.run_uri}"


def _show_samples(console: "Console", samples: list[tuple[str, str]]) -> None:
    for key, text in samples:
        short = " ".join(text.split())
        cut = short[:_SAMPLE_CHARACTERS] + ("…" if len(short) > _SAMPLE_CHARACTERS else "")
        console.print(f"{printable(key[:_SAMPLE_CHARACTERS])}: {printable(cut)}", soft_wrap=True)
    if samples:
        console.print()
