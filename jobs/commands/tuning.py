"""`promptmill tune`: find the settings with which a job's own prompts go fastest here."""

import dataclasses
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commands.choice import Choice, chosen_job
from jobs.commands.ending import Ending
from jobs.commands.running import new_log
from jobs.commands.texts import count, grid, rate, seconds
from jobs.display import display
from jobs.settings import Settings, read_settings
from schemas.errors import SettingsError
from schemas.tunings import Trial, Tuning

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.openers import VllmOpener
    from pipelines.tools import EngineNeed
    from pipelines.tune import Combination, Search, TunableEngine
    from pipelines.work import Work
    from schemas.engine_records import EngineKey

VERSION = 1


def tune_job(choice: Choice, *, minutes: float) -> Ending:
    """Search for about `minutes`, and keep what was found for later runs on this machine.

    The job's output is read at most, for a plan that is there; nothing is written to it.

    Raises:
        SettingsError: the engine has no settings, or the input holds no request.
        PromptmillError: see `pipelines.run.prepare`.
    """
    settings = read_settings()
    job = chosen_job(choice, settings)
    if choice.engine_kind(settings) != "vllm":
        raise SettingsError("only engine vllm has settings to tune")
    with display() as shown, tempfile.TemporaryDirectory(prefix="promptmill-") as folder:
        from jobs.openers import VllmOpener
        from jobs.tools import tools_for  # the model's libraries take seconds to load
        from pipelines.work import prepare

        tools = tools_for(settings, engine="vllm", on_progress=shown.show, on_note=shown.note)
        work = prepare(job, tools, partition=choice.partition, limit=choice.limit)
        opener = VllmOpener(settings.cache_dir, new_log(settings, shown), shown.note)
        found, key = _searched(work, opener, Path(folder), minutes * 60, shown.note)
        tuning = _tuning(job.name, found, key)
        path = _kept(settings, tuning, key)
    return _ending(tuning, found, path)


def _searched(
    work: "Work",
    opener: "VllmOpener",
    folder: Path,
    budget_s: float,
    on_note: Callable[[str], None],
) -> "tuple[Search, EngineKey]":
    from jobs.engine_choice import engine_key
    from pipelines.attempt import engine_need
    from pipelines.engines.compiling import compile_effect
    from pipelines.plan_parts import written_plan
    from pipelines.run import make_plan
    from pipelines.storage import open_store
    from pipelines.tune import combinations, search
    from pipelines.tuning_sample import sample_of

    made, store = written_plan(work.store), work.store
    if made is None:
        store = open_store(str(folder))
        made = make_plan(work, store=store)
    sample = sample_of(store, made, work.asking, work.job.sampling.settings())
    need = engine_need(work, made, made.batches)
    usual = opener.choose(need)
    is_gpu = usual.device.kind == "cuda"
    wanted = combinations(
        usual.max_num_seqs.value,
        usual.max_num_batched_tokens.value,
        modes=(True,) if is_gpu else (False, True),
    )
    found = search(
        sample,
        wanted,
        lambda largest: _opened(opener, need, largest),
        budget_s=budget_s,
        compile_s=compile_effect(usual.device, None, (), graph=usual.graph).extra_s,
        on_note=on_note,
    )
    return found, engine_key(need.checkpoint, usual.device)


def _opened(opener: "VllmOpener", need: "EngineNeed", largest: "Combination") -> "TunableEngine":
    """Start vLLM for steps of this size at most; how its start went is kept as any other's."""
    overrides = need.job.engine.model_copy(
        update={
            "max_num_seqs": largest.max_num_seqs,
            "max_num_batched_tokens": largest.max_num_batched_tokens,
            "compile": largest.is_compiled,
        }
    )
    job = need.job.model_copy(update={"engine": overrides})
    as_wanted = dataclasses.replace(need, job=job)
    settings = opener.choose(as_wanted)
    engine = opener.open(as_wanted, settings)
    try:
        opener.started(as_wanted, settings, engine.facts)
    except BaseException:
        engine.close()
        raise
    return engine


def _tuning(job_name: str, found: "Search", key: "EngineKey") -> Tuning:
    return Tuning(
        version=VERSION,
        job_name=job_name,
        tuned_at=datetime.now(UTC).isoformat(timespec="seconds"),
        num_requests=found.num_requests,
        mean_prompt_tokens=found.mean_prompt_tokens,
        mean_output_tokens=found.mean_output_tokens,
        trials=found.trials,
        **dataclasses.asdict(key),
    )


def _kept(settings: Settings, tuning: Tuning, key: "EngineKey") -> Path:
    from pipelines.engine_records import add_tuning

    return add_tuning(settings.cache_dir, key, tuning)


def _ending(tuning: Tuning, found: "Search", path: Path) -> Ending:
    fields: dict[str, object] = {
        **dataclasses.asdict(tuning),
        "winner": tuning.fastest,
        "left_out": found.left_out,
        "record": str(path),
    }

    def show(console: "Console") -> None:
        columns = ("", "mode", "sequences", "tokens a step", "speed", "steps", "preempted", "load")
        ranked = sorted(tuning.trials, key=lambda trial: -trial.tokens_per_s)
        console.print(grid(columns, [_row(one, tuning.fastest) for one in ranked], num_texts=2))
        console.print(
            f"{tuning.num_requests} requests of {tuning.mean_prompt_tokens:.0f} + "
            f"{tuning.mean_output_tokens:.0f} tokens on {tuning.device_name}; speed without load",
            soft_wrap=True,
        )
        if found.left_out:
            console.print(f"no time was left for {len(found.left_out)} combinations (--minutes)")
        console.print(f"later runs go by it: {path}", soft_wrap=True)

    return Ending(fields=fields, show=show)


def _row(trial: Trial, winner: Trial) -> list[str]:
    return [
        "best" if trial == winner else "",
        "compiled" if trial.is_compiled else "eager",
        count(trial.max_num_seqs),
        count(trial.max_num_batched_tokens),
        rate(trial.tokens_per_s),
        count(trial.num_steps),
        count(trial.num_preemptions),
        seconds(trial.load_s),
    ]
