"""The `promptmill` command: what can be asked, and what each question calls.

Typer makes an option of every parameter, so commands have more of them than other functions.
Modules with work in them are imported when a command is asked: `--help` loads none.
"""

import sys
from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.ending import end, fail

app = typer.Typer(
    name="promptmill",
    help="Offline batch inference: prompts in Parquet, through vLLM, to generations and lineage.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
model_app = typer.Typer(help="Models and their weights.", no_args_is_help=True)
app.add_typer(model_app, name="model")


@app.callback(invoke_without_command=True)
def _about(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from importlib import metadata

        try:
            typer.echo(f"promptmill {metadata.version('promptmill')}")
        except metadata.PackageNotFoundError:
            typer.echo("promptmill (not installed)")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    jobs: options.Jobs,
    *,
    partition: options.Partitions = None,
    input_uri: options.InputUri = None,
    output_uri: options.OutputUri = None,
    limit: options.Limit = None,
    engine: options.Engine = None,
    model: options.Model = None,
    weights: options.Weights = None,
    overrides: options.Overrides = None,
    as_json: options.Json = False,
) -> None:
    """Answer every prompt of a job's input once; again, only what is missing.

    Several jobs and partitions run one after the other, and share an engine where one serves.
    """
    from jobs.commands.choice import Choice
    from jobs.commands.running_several import run_jobs

    choices = [
        Choice(
            job=job,
            partition=one,
            input_uri=input_uri,
            output_uri=output_uri,
            limit=limit,
            engine=engine,
            model=model,
            weights=weights,
            overrides=tuple(overrides or ()),
        )
        for job in jobs
        for one in partition or [None]
    ]
    end(lambda: run_jobs(choices), as_json=as_json, is_resumable=True)


@app.command()
def plan(
    job: options.Job,
    *,
    partition: options.Partition = None,
    input_uri: options.InputUri = None,
    output_uri: options.OutputUri = None,
    limit: options.Limit = None,
    engine: options.Engine = None,
    model: options.Model = None,
    weights: options.Weights = None,
    overrides: options.Overrides = None,
    explain: options.Explain = False,
    as_json: options.Json = False,
) -> None:
    """Show what a run would hold, take and cost, without starting an engine."""
    from jobs.commands.choice import Choice
    from jobs.commands.planning import plan_job

    choice = Choice(
        job=job,
        partition=partition,
        input_uri=input_uri,
        output_uri=output_uri,
        limit=limit,
        engine=engine,
        model=model,
        weights=weights,
        overrides=tuple(overrides or ()),
    )
    end(lambda: plan_job(choice, is_explaining=explain), as_json=as_json)


@app.command()
def tune(
    job: options.Job,
    *,
    minutes: options.Minutes = 5.0,
    partition: options.Partition = None,
    input_uri: options.InputUri = None,
    limit: options.Limit = None,
    engine: options.Engine = None,
    model: options.Model = None,
    weights: options.Weights = None,
    overrides: options.Overrides = None,
    as_json: options.Json = False,
) -> None:
    """Find how the engine goes fastest with a job's own prompts; later runs go by it."""
    from jobs.commands.choice import Choice
    from jobs.commands.tuning import tune_job

    choice = Choice(
        job=job,
        partition=partition,
        input_uri=input_uri,
        limit=limit,
        engine=engine,
        model=model,
        weights=weights,
        overrides=tuple(overrides or ()),
    )
    end(lambda: tune_job(choice, minutes=minutes), as_json=as_json)


@app.command()
def verify(run_uri: options.RunUri, *, as_json: options.Json = False) -> None:
    """Check a run on storage: hashes, counts, and row keys against its input."""
    from jobs.commands.verifying import verify_run

    end(lambda: verify_run(run_uri), as_json=as_json)


@app.command()
def lineage(
    run_uri: options.RunUri,
    *,
    calibration: Annotated[
        bool,
        typer.Option("--calibration", help="Predicted output tokens beside those that came."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show what every batch of a run took and cost, and that the bill adds up."""
    from jobs.commands.calibrating import show_calibration
    from jobs.commands.lineage import show_lineage

    show = show_calibration if calibration else show_lineage
    end(lambda: show(run_uri), as_json=as_json)


@app.command()
def export(
    run_uri: options.RunUri,
    *,
    to: Annotated[str, typer.Option(metavar="FILE", help="FILE.parquet, .jsonl or .csv.")],
    without_input: Annotated[
        bool, typer.Option("--without-input", help="Leave the input's own columns out.")
    ] = False,
    long: Annotated[
        bool, typer.Option("--long", help="A row for each question, not columns for it.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Write a run's generations and rejects beside the columns of its input, in one file."""
    from jobs.commands.exporting import export_run

    end(
        lambda: export_run(run_uri, to, with_input=not without_input, is_long=long),
        as_json=as_json,
    )


@app.command()
def jobs(*, as_json: options.Json = False) -> None:
    """List the job files that are found, in promptmill's folder or those of PROMPTMILL_JOBS."""
    from jobs.commands.listing import list_jobs

    end(list_jobs, as_json=as_json)


@app.command()
def gc(
    output_uri: Annotated[str, typer.Argument(metavar="OUTPUT_URI", help="An output with runs.")],
    *,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the orphans of finished runs.")
    ] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also finished runs that are not current.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List what lies at an output, and delete what nobody will read. No run may work there."""
    from jobs.commands.collecting import collect_output

    end(
        lambda: collect_output(output_uri, is_deleting=delete, superseded=superseded),
        as_json=as_json,
    )


@model_app.command()
def build(
    model_id: Annotated[str, typer.Argument(metavar="ID", help="Bundled, a folder, a Hub id.")],
    *,
    weights: Annotated[str, typer.Option(help="int8, bf16, int4 or as_is.")] = "int8",
    revision: Annotated[str | None, typer.Option(help="A Hub model's full commit.")] = None,
    as_json: options.Json = False,
) -> None:
    """Make a model's weights once, so that the first run need not."""
    from jobs.commands.building import build_model

    end(lambda: build_model(model_id, weights, revision), as_json=as_json)


def main() -> None:
    """Do what this process's arguments ask, and exit with the code that says how it ended."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a character gets its number, not a crash.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = app(prog_name="promptmill", standalone_mode=False)
    except typer.TyperException as error:  # the arguments do not fit
        try:
            fail(error.format_message(), error.exit_code, as_json="--json" in sys.argv)
        except typer.Exit as ended:
            code = ended.exit_code
    sys.exit(code or 0)
