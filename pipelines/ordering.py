"""The order in which requests are fed, and where it is cut into batches: pure frames.

Prefix groups stay together, so that their shared tokens are computed once. Groups and the
requests in them go longest predicted total first, so that the run's tail is short requests.
"""

import polars as pl

MIN_BATCH_TOKENS = 8 * 1024
MAX_BATCH_TOKENS = 4 * 1024 * 1024
NUM_BATCHES_AIM = 200
MAX_BATCH_ROWS = 16384


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


def ordered(requests: pl.DataFrame, *, max_batch_tokens: int) -> pl.DataFrame:
    """Return the requests in feeding order, with `batch` (from 0) and `prefix_group` (0: alone).

    `requests` are rows of the spool's index that have a request, each request once.
    """
    total = pl.col("num_prompt_tokens") + pl.col("predicted_output_tokens")
    grouped = requests.with_columns(total=total.cast(pl.Int64)).with_columns(
        group_size=pl.len().over("prefix"), group_total=pl.col("total").max().over("prefix")
    )
    in_order = grouped.sort(
        ["group_total", "prefix", "total", "number"], descending=[True, False, True, False]
    )
    start = pl.col("total").cum_sum() - pl.col("total")
    return in_order.with_columns(
        prefix_group=pl.when(pl.col("group_size") > 1)
        .then(pl.col("prefix").rle_id() + 1)
        .otherwise(0)
        .cast(pl.Int32),
        batch=_cut(start // max_batch_tokens),
    )


def _cut(by_tokens: pl.Expr) -> pl.Expr:
    """Number the batches: a new one at each token budget, and after `MAX_BATCH_ROWS` rows."""
    by_rows = pl.int_range(pl.len()).over(by_tokens) // MAX_BATCH_ROWS
    return pl.struct(by_tokens.alias("tokens"), by_rows.alias("rows")).rle_id()


def with_batches(shared: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that share an earlier row's request, with that request's `batch`."""
    answers = requests.select("digest_a", "digest_b", "batch")
    return shared.join(answers, on=["digest_a", "digest_b"], how="left", maintain_order="left")
