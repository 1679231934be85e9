"""The page of results: docs/benchmarks.md, made from the JSON files and nothing else."""

from collections.abc import Sequence
from statistics import median

from benchmarks.results import Outcome, Result, Run, rounded_down

_HEAD = """# Benchmarks

Made by `make bench` from the JSON files in [benchmarks/](benchmarks); do not edit. Each run of a
contender is a fresh process, so nothing is cached from the run before, and contenders alternate.
Seconds are medians (fastest to slowest run), from the loaded model to the last answer; loading
stands apart. promptmill's seconds also hold planning, commits, manifest and lineage; the others
write nothing, and get their prompts with the chat template applied. But for those that say
otherwise, the others have the environment of a user's shell and vLLM's defaults (on a CPU all
but the share of memory: with its 0.92 vLLM does not start beside anything else). Tokens are
prompt + output tokens a second, cached ones among them. How many times faster is rounded down.
"""

_DETAILS = (
    ("num_steps", "engine steps", "{:,.0f}"),
    ("min_steps", "least possible steps", "{:,.0f}"),
    ("idle_fraction", "idle share of generate time", "{:.1%}"),
    ("tail_idle_fraction", "idle share after the last request went in", "{:.1%}"),
    ("tail_fraction", "tail share", "{:.1%}"),
    ("fraction_of_limit", "fraction of the device's limit", "{:.2f}"),
    ("plan_s", "planning, sealing, lineage (s)", "{:.2f}"),
    ("num_preemptions", "preemptions", "{:,.0f}"),
    ("num_requests", "requests asked", "{:,.0f}"),
    ("forecast_s", "forecast, load and generation (s)", "{:.1f}"),
    ("forecast_error", "forecast error", "{:+.1%}"),
)


def page(results: Sequence[Result]) -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *map(_section, results)])


def _section(result: Result) -> str:
    lines = [f"## {result.workload.upper()}: {result.title}", ""]
    answers = f"{result.num_rows:,} rows"
    if result.num_asks != result.num_rows:
        answers += f", {result.num_asks:,} answers"
    stated = "; ".join(f"{name}: {text}" for name, text in result.conditions.items())
    lines += [f"{answers}; {stated}.", ""]
    lines += _table(result)
    lines += ["", *_promptmill(result)]
    return "\n".join(lines)


def _table(result: Result) -> list[str]:
    has_right = any(run.num_correct is not None for one in result.outcomes for run in one.runs)
    head = ["", "weights", "seconds", "tokens/s", "load s", "prompt (cached) + output tokens"]
    head += ["right"] if has_right else []
    rows = [[*head, "promptmill is"], ["---"] * (len(head) + 1)]
    for outcome in result.outcomes:
        cells = _cells(result, outcome, has_right=has_right)
        rows.append([outcome.title, outcome.weights, *cells])
    return [f"| {' | '.join(row)} |" for row in rows]


def _cells(result: Result, outcome: Outcome, *, has_right: bool) -> list[str]:
    """Return the cells after title and weights."""
    runs = outcome.runs
    if not runs:
        failed = outcome.failure or "not run"
        return [failed, *["" for _ in range(4 + has_right)]]
    seconds = [run.seconds for run in runs]
    spread = f"{median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
    spread = spread if len(runs) > 1 else f"{seconds[0]:.1f} (1 run)"
    speedup = result.speedup(outcome.name)
    times = f"{rounded_down(speedup):.2f}x" if speedup and outcome.name != "promptmill" else ""
    right = [_right(result, runs)] if has_right else []
    return [
        spread,
        f"{median(run.tokens_per_s for run in runs):,.0f}",
        f"{median(run.load_s for run in runs):.0f}",
        _tokens(runs[-1]),
        *right,
        times,
    ]


def _tokens(run: Run) -> str:
    cached = "?" if run.num_cached_tokens is None else f"{run.num_cached_tokens:,}"
    return f"{run.num_prompt_tokens:,} ({cached}) + {run.num_output_tokens:,}"


def _right(result: Result, runs: Sequence[Run]) -> str:
    known = [run.num_correct for run in runs if run.num_correct is not None]
    return f"{median(known) / result.num_asks:.1%}" if known else ""


def _promptmill(result: Result) -> list[str]:
    """Return a table of promptmill's own figures, a column for each of its outcomes."""
    ours = [one for one in result.outcomes if one.name.startswith("promptmill") and one.runs]
    if not ours:
        return []
    rows = [["", *(one.title for one in ours)], ["---"] * (len(ours) + 1)]
    for name, title, form in _DETAILS:
        values = [one.detail(name) for one in ours]
        if any(value is not None for value in values):
            rows.append([title, *("" if v is None else form.format(v) for v in values)])
    return [*(f"| {' | '.join(row)} |" for row in rows), ""]
