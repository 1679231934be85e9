"""promptmill beside what a user would pick: same model, same rows, alternating, medians.

    python -m benchmarks.compare [w1 ... w5] [--rows N] [--repeats N] [--contenders a,b] [--once b]

One repetition runs every contender once, each in a fresh process with its own environment; the
next repetition begins with the next contender. Results go to `--results` as JSON, and the page
beside that folder is made anew from all that lies in it.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks import page, results
from benchmarks.conditions import conditions
from benchmarks.contenders.task import Measured
from benchmarks.data_sets import ROOT, DataMissingError
from benchmarks.results import Outcome, Result, Run
from benchmarks.roster import BY_NAME, CONTENDERS, Contender
from benchmarks.starting import run, start
from benchmarks.workloads import WORKLOADS, Workload


class WorkDiffersError(Exception):
    """Two contenders did not do the same work, so their seconds do not compare."""


def main() -> None:
    """Measure what the arguments name, and write results and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), choices=[*WORKLOADS])
    parser.add_argument("--rows", type=int, help="rows of each workload")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contenders", help="names with commas: " + ",".join(BY_NAME))
    parser.add_argument("--once", default="", help="contenders that run in the first turn only")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "benchmarks")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children are ended too
    names = given.contenders.split(",") if given.contenders else list(BY_NAME)
    once = frozenset(filter(None, given.once.split(",")))
    if unknown := (once | set(names)) - set(BY_NAME):
        parser.error(f"no contender {sorted(unknown)}; there are {', '.join(BY_NAME)}")
    for name in given.workloads:
        choice = WORKLOADS[name]
        try:
            workload = choice.make(given.rows or choice.num_rows)
        except DataMissingError as error:
            print(f"{name}: skipped: {error}", flush=True)
            continue
        chosen = [one for one in CONTENDERS if one.name in names and name in one.workloads]
        result = compare(workload, chosen, repeats=given.repeats, once=once)
        results.write(result, given.results)
        text = page.page(results.read(given.results))
        given.results.with_suffix(".md").write_text(text, "utf-8")
        print(page.page([result]), flush=True)


def compare(
    workload: Workload, contenders: list[Contender], *, repeats: int, once: frozenset[str]
) -> Result:
    """Return how each contender answered the workload, `repeats` times, or `once`.

    A contender that fails is not run again; the others are.

    Raises:
        WorkDiffersError: see `check_same_work`.
    """
    measured: dict[str, list[Measured]] = {one.name: [] for one in contenders}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="promptmill-bench-") as name:
        starts = [start(workload, one, Path(name, one.name)) for one in contenders]
        stated = conditions(repeats)
        for turn in range(repeats):
            first = turn % len(starts)
            for one in starts[first:] + starts[:first]:
                contender = one.contender.name
                if contender in failures or (turn and contender in once):
                    continue
                try:
                    measured[contender].append(run(one))
                except (RuntimeError, OSError) as error:
                    failures[contender] = str(error)
                print(_line(workload, contender, measured, failures), flush=True)
            check_same_work(workload, measured)
    return Result(
        workload=workload.name,
        title=workload.title,
        num_rows=workload.table.num_rows,
        num_asks=len(workload.asks),
        conditions=stated,
        outcomes=tuple(
            Outcome(
                name=one.name,
                title=one.title,
                weights=one.weights,
                runs=tuple(_run(workload, run) for run in measured[one.name]),
                failure=failures.get(one.name),
            )
            for one in contenders
        ),
    )


def check_same_work(workload: Workload, measured: dict[str, list[Measured]]) -> None:
    """Return if all contenders answered all rows, with as many tokens where those are fixed.

    Raises:
        WorkDiffersError: one did not; the message names it with both figures.
    """
    rows = {ask.row for ask in workload.asks}
    num_output = sum(ask.max_tokens for ask in workload.asks)
    num_prompt = {
        one.num_prompt_tokens
        for name in ("llm-defaults", "llm-ours")
        for one in measured.get(name, [])
    }
    for name, runs in measured.items():
        for one in runs:
            missing = rows - one.answers.keys()
            if missing:
                raise WorkDiffersError(f"{name} left {len(missing)} of {len(rows)} unanswered")
            if workload.is_fixed_length and one.num_output_tokens != num_output:
                raise WorkDiffersError(
                    f"{name} made {one.num_output_tokens} output tokens, expected {num_output}"
                )
            is_same = workload.is_same_prompt and not workload.num_repeated
            if is_same and num_prompt and one.num_prompt_tokens not in num_prompt:
                raise WorkDiffersError(
                    f"{name} had {one.num_prompt_tokens} prompt tokens, LLM.generate {num_prompt}"
                )


def _run(workload: Workload, measured: Measured) -> Run:
    """Return the run as it is kept: with the number of right answers, without the answers."""
    known = [ask for ask in workload.asks if ask.expected is not None]
    right = sum(measured.answers[ask.row].strip() == ask.expected for ask in known)
    return Run(
        load_s=measured.load_s,
        seconds=measured.seconds,
        num_prompt_tokens=measured.num_prompt_tokens,
        num_cached_tokens=measured.num_cached_tokens,
        num_output_tokens=measured.num_output_tokens,
        num_correct=right if known else None,
        details=measured.details,
    )


def _line(
    workload: Workload,
    contender: str,
    measured: dict[str, list[Measured]],
    failures: dict[str, str],
) -> str:
    if contender in failures:
        return f"{workload.name} {contender}: {failures[contender]}"
    one = measured[contender][-1]
    return f"{workload.name} {contender}: {one.seconds:.1f} s, load {one.load_s:.1f} s"


if __name__ == "__main__":
    main()
