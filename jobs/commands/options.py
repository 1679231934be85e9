"""The options that commands share, as Typer types."""

from typing import Annotated

import typer

_WHAT = "What to run on"
_HOW = "How to run"

Job = Annotated[str, typer.Argument(help="A job's name, or the path of a YAML file.")]
Jobs = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Jobs by name, or paths of YAML files.")
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partition",
        metavar="KEY",
        help="Which partition of the input, or a range A..B of them. Repeatable.",
        rich_help_panel=_WHAT,
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Which partition of the input.", rich_help_panel=_WHAT),
]
InputUri = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="URI",
        help="Other Parquet files: a file, a folder, a glob. Without {partition}, all of it.",
        rich_help_panel=_WHAT,
    ),
]
OutputUri = Annotated[
    str | None,
    typer.Option("--output", metavar="URI", help="Another output.", rich_help_panel=_WHAT),
]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Only the first N rows.", rich_help_panel=_WHAT),
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="vllm, or echo for answers without a model.", rich_help_panel=_HOW
    ),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The bundled model, a folder, a Hub id.", rich_help_panel=_HOW),
]
Weights = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="int8, bf16, int4 or as_is.", rich_help_panel=_HOW),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=VALUE",
        help="Override a key of the job file, for example sampling.max_tokens=32. Repeatable.",
        rich_help_panel=_HOW,
    ),
]
Minutes = Annotated[
    float, typer.Option(metavar="N", min=0.1, help="How long to search, loading included.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Also how the engine would be started, and why.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, all else on stderr.")
]
RunUri = Annotated[
    str, typer.Argument(metavar="RUN_URI", help="A run, or an output: then its current run.")
]
