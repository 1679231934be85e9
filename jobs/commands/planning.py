"""`promptmill plan`: what a run would hold and take; nothing is written to the output."""

import dataclasses
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.commands.choice import Choice, chosen_job
from jobs.commands.ending import Ending, printable
from jobs.commands.explaining import Explained, explained, with_settings
from jobs.commands.texts import codes, count, pairs, told
from jobs.display import display
from jobs.settings import read_settings

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.outline import Bar, Outline
    from pipelines.work import Work
    from schemas.forecasts import Forecast
    from schemas.plans import Plan

_BAR_CHARACTERS = 40
_LITTLE_SPARED = 0.25
"""Of the prompt tokens of all questions but the first; below it `plan` says what to do."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def plan_job(choice: Choice, *, is_explaining: bool = False) -> Ending:
    """Plan the chosen job, in a folder that is deleted again unless the run has its plan already.

    Raises:
        PromptmillError: see `pipelines.run.prepare`.
    """
    settings = read_settings()
    job = chosen_job(choice, settings)
    with display() as shown, tempfile.TemporaryDirectory(prefix="promptmill-") as folder:
        from jobs.tools import tools_for  # the model's libraries take seconds to load
        from pipelines.attempt import engine_need
        from pipelines.ledger import committed_batches
        from pipelines.outline import outline
        from pipelines.plan_parts import written_plan
        from pipelines.run import expect, make_plan
        from pipelines.storage import open_store
        from pipelines.work import prepare

        tools = tools_for(
            settings,
            engine=choice.engine_kind(settings),
            on_progress=shown.show,
            on_note=shown.note,
        )
        work = prepare(job, tools, partition=choice.partition, limit=choice.limit)
        made, store = written_plan(work.store), work.store
        if made is None:
            store = open_store(folder)
            made = make_plan(work, store=store)
        done = committed_batches(work.store)
        pending = [batch for batch in made.batches if batch.batch_id not in done]
        found = outline(store, made)
        expected = expect(work, pending)
        why: list[Explained] = []
        if is_explaining:
            need = engine_need(work, made, pending, expected)
            why = explained(need, choice.engine_kind(settings), settings)
    return with_settings(_ending(work, made, found, expected, len(pending)), why)


def _ending(
    work: "Work", made: "Plan", found: "Outline", expected: "Forecast", num_pending: int
) -> Ending:
    fields: dict[str, object] = {
        "run_key": made.run_key,
        "run_uri": work.store.uri,
        **dataclasses.asdict(found),
        "num_pending_batches": num_pending,
        "predicted_s": expected.seconds,
        "predicted_usd": expected.usd,
        "forecast": dataclasses.asdict(expected),
    }

    def show(console: "Console") -> None:
        console.print(pairs(f"plan of {work.job.name}", _rows(found, num_pending)))
        if found.too_long:
            console.print("will not fit:")
            for key, reason in found.too_long:
                console.print(f"  {printable(key)}: {printable(reason)}", soft_wrap=True)
        console.print("prompt tokens of requests:")
        for text in bars(found.histogram):
            console.print(f"  {text}", soft_wrap=True)
        console.print()
        for text in told(expected):
            console.print(text, soft_wrap=True)

    return Ending(fields=fields, show=show)


def _rows(found: "Outline", num_pending: int) -> list[tuple[str, str]]:
    rejects = f"  ({codes(found.rejects_by_code)})" if found.num_rejects else ""
    median, longest = found.median_prompt_tokens, found.max_prompt_tokens
    lengths = "" if median is None else f", median {median:,}, longest {longest or 0:,}"
    batches = f"{count(found.num_batches)}, {count(num_pending)} pending"
    return [
        ("rows", count(found.num_rows)),
        ("rejects", count(found.num_rejects) + rejects),
        ("will not fit", count(found.rejects_by_code.get("PROMPT_TOO_LONG", 0))),
        ("cut to fit", count(found.num_truncated)),
        ("requests", count(found.num_requests)),
        (
            "duplicates",
            f"{count(found.num_shared)} rows, {count(found.num_shared_tokens)} tokens saved",
        ),
        (
            "shared prefixes",
            f"{count(found.num_prefix_groups)} groups, "
            f"{count(found.num_prefix_tokens)} tokens at least",
        ),
        *_of_questions(found),
        ("prompt tokens", count(found.num_prompt_tokens) + lengths),
        ("output tokens", f"{count(found.predicted_output_tokens)} at most"),
        ("batches", batches),
    ]


def _of_questions(found: "Outline") -> list[tuple[str, str]]:
    """Return what a row's questions spare each other, and what to do where that is little."""
    from pipelines.row_prompts import CACHE_BLOCK_TOKENS

    if found.num_questions < 2:
        return []
    spared = (
        f"{found.num_questions} for each row, {count(found.num_spared_tokens)} tokens of its "
        "text computed once"
    )
    others = found.num_prompt_tokens * (found.num_questions - 1) / found.num_questions
    if found.num_spared_tokens >= _LITTLE_SPARED * others:
        return [("questions", spared)]
    reason = (
        "most of each prompt is computed again for every question: in prompt.user put "
        "{{ question }} behind the row's text (text below a cache block of "
        f"{CACHE_BLOCK_TOKENS} tokens is never shared)"
    )
    return [("questions", spared), ("", reason)]


def bars(histogram: "Sequence[Bar]") -> list[str]:
    """Return one line per bar, as long as its share of the largest; not empty for one request."""
    most = max((bar.num_requests for bar in histogram), default=0)
    lines: list[str] = []
    for bar in histogram:
        eighths = -(-bar.num_requests * _BAR_CHARACTERS * 8 // most)
        drawn = _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        lines.append(
            f"{bar.min_tokens:>7,} to {bar.max_tokens:>7,}  {bar.num_requests:>9,} {drawn}"
        )
    return lines
