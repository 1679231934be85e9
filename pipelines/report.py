"""Report: how a run ended, in numbers that come from what lies on storage."""

from collections.abc import Collection, Iterable

from pipelines.accounting import Spent
from pipelines.attempt_log import read_attempts
from pipelines.bill import Shares, attempt_bills
from pipelines.storage import Store
from schemas.commits import Manifest
from schemas.forecasts import Forecast, error_fraction
from schemas.job_spec import Price
from schemas.runs import RunReport


def report_of(
    store: Store,
    manifest: Manifest,
    reused: Collection[str],
    spent: Spent,
    price: Price,
    *,
    wall_s: float,
    forecast: Forecast | None,
) -> RunReport:
    """Return the report of a sealed run; `reused` are batches committed before this invocation."""
    lineage = [commit.lineage for commit in manifest.commits]
    attempts = attempt_bills(read_attempts(store), manifest.commits)
    seconds = spent.generate_s
    has_generated = spent.num_output_tokens > 0 and seconds > 0
    total = spent.num_output_tokens + spent.meter.all.num_prefill_tokens + spent.num_cached_tokens
    return RunReport(
        run_key=manifest.run_key,
        run_uri=store.uri,
        num_rows=manifest.num_rows,
        num_generations=manifest.num_generations,
        num_rejects=manifest.num_rejects,
        rejects_by_code=manifest.rejects_by_code,
        num_requests=sum(one.num_requests for one in lineage),
        num_batches=len(lineage),
        num_reused_batches=sum(one.batch_id in reused for one in lineage),
        num_prompt_tokens=sum(one.num_prompt_tokens for one in lineage),
        num_cached_tokens=sum(one.num_cached_tokens for one in lineage),
        num_output_tokens=sum(one.num_output_tokens for one in lineage),
        load_s=spent.load_s,
        generate_s=seconds,
        wall_s=wall_s,
        device_s=spent.device_s,
        usd=spent.usd(price.usd_per_device_hour),
        output_tokens_per_s=spent.num_output_tokens / seconds if has_generated else None,
        total_tokens_per_s=total / seconds if has_generated else None,
        run_device_s=Shares.sum([one.device_s for one in attempts]).held,
        run_usd=Shares.sum([one.usd for one in attempts]).held,
        fraction_of_limit=spent.fraction_of_limit,
        bound_by=spent.meter.all.bound_by,
        num_shared_tokens=sum(
            one.num_shared_prompt_tokens + one.num_shared_output_tokens for one in lineage
        ),
        saved_dedup_usd=_known_sum(one.saved_dedup_usd for one in lineage),
        saved_prefix_usd=_known_sum(one.saved_prefix_usd for one in lineage),
        num_new_output_tokens=spent.num_output_tokens,
        held_s=spent.wall_s,
        forecast=forecast,
        forecast_error=error_fraction(spent.wall_s, forecast.seconds) if forecast else None,
        output_tokens_error=error_fraction(spent.num_output_tokens, forecast.output_tokens)
        if forecast
        else None,
    )


def _known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
