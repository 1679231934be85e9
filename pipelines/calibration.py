"""Calibration: the output tokens that a run's plan predicted, beside those that came."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from pipelines.ledger import commits_of, committed_batches
from pipelines.plan_parts import read_batches, written_plan
from pipelines.prediction import prediction_of
from pipelines.reading import read_part
from pipelines.storage import Store
from schemas.commits import Commit
from schemas.errors import VerificationError
from schemas.plans import Plan

_PLANNED = ["row_key", "num_prompt_tokens", "predicted_output_tokens", "max_output_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Requests with `min_prompt_tokens` to `max_prompt_tokens`; all figures in output tokens.

    `bias` is the mean of predicted minus actual, `mean_absolute_error` of their distance.
    `above_p90_fraction` of the requests took more than their predicted 90th percentile: a tenth
    where the prediction is right, none where it was what is possible at most.
    """

    min_prompt_tokens: int
    max_prompt_tokens: int
    num_requests: int
    predicted_mean: float
    actual_mean: float
    actual_p50: float
    actual_p90: float
    mean_absolute_error: float
    bias: float
    above_p90_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A run's calibration by prompt length, each bucket twice as wide as the one before.

    `total` is None where no request was answered. `basis` is what the plan predicted from.
    """

    run_uri: str
    basis: str
    buckets: tuple[Calibrated, ...]
    total: Calibrated | None


def calibration_of(run: Store) -> Calibration:
    """Return how well the plan of this run, finished or not, predicted what was answered.

    Reads the plan's and the generations' parts of committed batches once.

    Raises:
        VerificationError: there is no plan, or a part is absent or damaged.
    """
    plan = written_plan(run)
    if plan is None:
        raise VerificationError(f"{run.uri} holds no plan, so no predictions")
    schema = {**dict.fromkeys(_PLANNED[1:], pl.Int32), "actual": pl.Int32}
    asked = pl.concat([pl.DataFrame(schema=schema), *_answered(run, plan)])
    asked = _with_p90(asked, plan)
    octave = pl.col("num_prompt_tokens").log(2).ceil().clip(4).cast(pl.Int32).alias("octave")
    buckets = [
        _calibrated(frame, 1 if octave == 4 else 2 ** (octave - 1) + 1, 2**octave)
        for (octave,), frame in asked.sort("num_prompt_tokens").group_by(
            octave, maintain_order=True
        )
        if isinstance(octave, int)
    ]
    spans = [(one.min_prompt_tokens, one.max_prompt_tokens) for one in buckets]
    return Calibration(
        run_uri=run.uri,
        basis=plan.prediction_basis,
        buckets=tuple(buckets),
        total=_calibrated(asked, spans[0][0], spans[-1][1]) if spans else None,
    )


def _answered(run: Store, plan: Plan) -> Iterator[pl.DataFrame]:
    """Yield the requests of each committed batch that were answered, and what they took."""
    done = committed_batches(run)
    batches = [one for one in plan.batches if one.num_requests and one.batch_id in done]
    commits = commits_of(run, [batch.batch_id for batch in batches])
    for cut, commit in zip(read_batches(run, plan, batches), commits, strict=True):
        planned = pl.DataFrame(cut.rows.slice(0, cut.batch.num_requests).select(_PLANNED))
        yield planned.join(_outputs(run, commit), on="row_key").drop("row_key")


def _outputs(run: Store, commit: Commit) -> pl.DataFrame:
    tables = [read_part(run, part) for part in commit.parts if part.kind == "generations"]
    return pl.concat(
        pl.DataFrame(table.select(["row_key", "num_output_tokens"])) for table in tables
    ).rename({"num_output_tokens": "actual"})


def _with_p90(asked: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Return the requests with `p90`: the 90th percentile that was predicted for them."""
    prediction = prediction_of(plan)
    kinds = asked.select("num_prompt_tokens", "max_output_tokens").unique()
    p90 = [prediction.expected(prompt, max_output_tokens=most).p90 for prompt, most in kinds.rows()]
    return asked.join(
        kinds.with_columns(p90=pl.Series(p90, dtype=pl.Int32)),
        on=["num_prompt_tokens", "max_output_tokens"],
        how="left",
    )


def _calibrated(asked: pl.DataFrame, first: int, last: int) -> Calibrated:
    error = pl.col("predicted_output_tokens") - pl.col("actual")
    found = asked.select(
        num_requests=pl.len(),
        predicted_mean=pl.col("predicted_output_tokens").mean(),
        actual_mean=pl.col("actual").mean(),
        actual_p50=pl.col("actual").quantile(0.5),
        actual_p90=pl.col("actual").quantile(0.9),
        mean_absolute_error=error.abs().mean(),
        bias=error.mean(),
        above_p90_fraction=(pl.col("actual") > pl.col("p90")).mean(),
    )
    return Calibrated(min_prompt_tokens=first, max_prompt_tokens=last, **found.row(0, named=True))
