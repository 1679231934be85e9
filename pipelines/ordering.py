"""The order in which requests are fed, and where it is cut into batches: pure frames.

Prefix groups stay together, so that their shared tokens are computed once. Groups and the
requests in them go longest predicted stay in the engine first, so that the run's tail is short
requests.
"""

import polars as pl

from pipelines.prediction import Prediction

MIN_BATCH_TOKENS = 8 * 1024
MAX_BATCH_TOKENS = 4 * 1024 * 1024
NUM_BATCHES_AIM = 200
MAX_BATCH_ROWS = 16384
PROMPT_TOKENS_PER_STEP = 64
"""So many prompt tokens hold a sequence in the engine as long as one output token does: a step
makes one output token and hundreds of prompt tokens. Simulated (docs/log.md): by plain totals
the tail is two to seven times as long; 64, 128 and 256 are alike."""
PROBE_FRACTION = 0.01
MIN_PROBE, MAX_PROBE = 16, 1024
"""Requests of the probe: about 1 %, and no fewer than a mean can be taken of."""


def default_batch_tokens(num_tokens: int) -> int:
    """Return the token budget of one batch for a run of `num_tokens` prompt + output tokens.

    About 200 commits a run: a crash loses at most half a percent, and a store sees few
    objects; between 8 Ki tokens (seconds on a CPU) and 4 Mi (minutes on a GPU).
    """
    return min(MAX_BATCH_TOKENS, max(MIN_BATCH_TOKENS, num_tokens // NUM_BATCHES_AIM))


def with_repeated_ids(index: pl.DataFrame) -> pl.DataFrame:
    """Return the index with `is_repeated`: the row's key already stood in an earlier row."""
    return index.with_columns(is_repeated=~pl.struct("key_a", "key_b").is_first_distinct())


def with_first_of_request(asked: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with `is_first`: false where an earlier row's answer can be shared."""
    is_first = pl.struct("digest_a", "digest_b").is_first_distinct()
    return asked.with_columns(is_first=is_first | ~pl.col("is_shareable"))


def num_tokens(requests: pl.DataFrame) -> int:
    """Return prompt + predicted output tokens of all requests."""
    columns = ("num_prompt_tokens", "predicted_output_tokens")
    return sum(int(requests[name].cast(pl.Int64).sum()) for name in columns)


def num_prefix_tokens(requests: pl.DataFrame, probe: int) -> int:
    """Return how many prompt tokens at least lie in prefixes that an earlier request has.

    Counts the first `probe` tokens of each request of a prefix group but the first.
    """
    in_groups = requests.filter(pl.col("prefix_group") > 0)
    repeats = in_groups.height - in_groups["prefix_group"].n_unique()
    return repeats * probe


def with_predictions(requests: pl.DataFrame, prediction: Prediction) -> pl.DataFrame:
    """Return the requests with `predicted_output_tokens` and `is_probe`.

    Where nothing is known of the answers, some requests spread evenly over the prompt lengths
    are a probe: fed first, so that what they take can be known of all others.
    """
    in_order = requests.sort("num_prompt_tokens", "number")
    lengths = in_order["num_prompt_tokens"].unique()
    mean = {
        length: prediction.expected(length, max_output_tokens=2**31 - 1).mean for length in lengths
    }
    return in_order.with_columns(
        predicted_output_tokens=pl.min_horizontal(
            "max_output_tokens",
            pl.col("num_prompt_tokens")
            .replace_strict(mean, return_dtype=pl.Float64)
            .round()
            .clip(1, 2**31 - 1)
            .cast(pl.Int32),
        ),
        is_probe=_is_probe(in_order.height)
        if not prediction.is_known and not prediction.is_fixed
        else pl.lit(False),  # noqa: FBT003 - polars' way to say a constant column
    )


def _is_probe(num_requests: int) -> pl.Expr:
    """Choose the probe among requests sorted by length; of fewer than 100 none is chosen."""
    num_probe = min(MAX_PROBE, max(MIN_PROBE, round(num_requests * PROBE_FRACTION)))
    if num_requests < 100:
        num_probe = 0
    place = pl.int_range(pl.len(), dtype=pl.Int64) * num_probe
    return place // num_requests != (place + num_probe) // num_requests


def ordered(requests: pl.DataFrame, *, max_batch_tokens: int) -> pl.DataFrame:
    """Return the requests in feeding order, with `batch` (from 0) and `prefix_group` (0: alone).

    `requests` are rows of the spool's index that have a request, each request once, with
    their predictions. The probe is in batches of its own, the first.
    """
    total = pl.col("num_prompt_tokens") + pl.col("predicted_output_tokens")
    stay = PROMPT_TOKENS_PER_STEP * pl.col("predicted_output_tokens") + pl.col("num_prompt_tokens")
    grouped = requests.with_columns(
        total=total.cast(pl.Int64), stay=stay.cast(pl.Int64)
    ).with_columns(
        group_size=pl.len().over("prefix"), group_stay=pl.col("stay").max().over("prefix")
    )
    in_order = grouped.sort(
        ["is_probe", "group_stay", "prefix", "stay", "number"],
        descending=[True, True, False, True, False],
    ).with_row_index("rank")
    start = pl.col("total").cum_sum().over("is_probe") - pl.col("total")
    return in_order.with_columns(
        prefix_group=pl.when(pl.col("group_size") > 1)
        .then(pl.col("rank").min().over("prefix"))
        .rank("dense")
        .fill_null(0)
        .cast(pl.Int32),
        batch=_cut(start // max_batch_tokens),
    )


def _cut(by_tokens: pl.Expr) -> pl.Expr:
    """Number the batches: a new one at each token budget, and after `MAX_BATCH_ROWS` rows."""
    by_rows = pl.int_range(pl.len()).over("is_probe", by_tokens) // MAX_BATCH_ROWS
    return pl.struct("is_probe", by_tokens.alias("tokens"), by_rows.alias("rows")).rle_id()


def with_batches(shared: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that share an earlier row's request, with that request's `batch`."""
    answers = requests.select("digest_a", "digest_b", "batch")
    return shared.join(answers, on=["digest_a", "digest_b"], how="left", maintain_order="left")
