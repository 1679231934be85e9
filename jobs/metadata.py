"""Metadata: what a person sees in Dagster of a plan, a run, its lineage and its audit.

Flat: Dagster plots only whole numbers and fractions at the top level. What is not known is
left out, so that a plot has a gap there and no zero.
"""

from collections.abc import Mapping

import dagster as dg
import pyarrow as pa

from pipelines.audit import AuditReport
from schemas.commits import Manifest
from schemas.plans import Plan
from schemas.runs import RunReport

JOB_TAG = "promptmill/job"
"""The tag by which runs, assets and ticks of one job are found in the UI."""

Metadata = dict[str, int | float | str | dg.MetadataValue]


def run_metadata(report: RunReport) -> Metadata:
    """Return how a run went. `run_usd` is of all its attempts, `usd` of this one."""
    return _known(
        num_rows=report.num_rows,
        num_generations=report.num_generations,
        num_rejects=report.num_rejects,
        rejects_by_code=_json(report.rejects_by_code),
        num_requests=report.num_requests,
        num_batches=report.num_batches,
        num_reused_batches=report.num_reused_batches,
        num_prompt_tokens=report.num_prompt_tokens,
        num_cached_tokens=report.num_cached_tokens,
        num_output_tokens=report.num_output_tokens,
        cached_fraction=_ratio(report.num_cached_tokens, report.num_prompt_tokens),
        tokens_per_s=report.total_tokens_per_s,
        output_tokens_per_s=report.output_tokens_per_s,
        device_s=report.device_s,
        load_s=report.load_s,
        generate_s=report.generate_s,
        wall_s=report.wall_s,
        fraction_of_limit=report.fraction_of_limit,
        bound_by=report.bound_by,
        num_shared_tokens=report.num_shared_tokens,
        saved_dedup_usd=report.saved_dedup_usd,
        saved_prefix_usd=report.saved_prefix_usd,
        usd=report.usd,
        run_usd=report.run_usd,
        forecast_s=report.forecast.seconds if report.forecast else None,
        forecast_error=report.forecast_error,
        output_tokens_error=report.output_tokens_error,
        run_key=report.run_key,
        run_uri=report.run_uri,
    )


def plan_metadata(plan: Plan, run_uri: str) -> Metadata:
    """Return what a run will do: rows, batches, and the tokens that are expected."""
    batches = plan.batches
    return _known(
        num_rows=plan.num_rows,
        num_rejects=sum(batch.num_rejects for batch in batches),
        rejects_by_code=_json(plan.rejects_by_code),
        num_requests=plan.num_requests,
        num_shared=sum(batch.num_shared for batch in batches),
        num_batches=len(batches),
        num_prompt_tokens=sum(batch.num_prompt_tokens for batch in batches),
        predicted_output_tokens=sum(batch.predicted_output_tokens for batch in batches),
        num_shared_tokens=plan.num_shared_tokens,
        num_prefix_tokens=plan.num_prefix_tokens,
        num_files=len(plan.files),
        planned_s=plan.planned_s,
        input_uri=plan.input_uri,
        run_key=plan.run_key,
        run_uri=run_uri,
    )


def lineage_metadata(manifest: Manifest, lineage_uri: str) -> Metadata:
    """Return where the lineage of every batch lies, and what the batches add up to."""
    batches = [commit.lineage for commit in manifest.commits]
    usd = sum(batch.usd for batch in batches)
    num_tokens = sum(batch.num_prompt_tokens + batch.num_output_tokens for batch in batches)
    return _known(
        num_batches=len(batches),
        num_rows=manifest.num_rows,
        num_prompt_tokens=sum(batch.num_prompt_tokens for batch in batches),
        num_output_tokens=sum(batch.num_output_tokens for batch in batches),
        num_truncated_rows=sum(batch.num_truncated_rows for batch in batches),
        batches_device_s=sum(batch.device_s for batch in batches),
        batches_usd=usd,
        usd_per_million_tokens=_ratio(usd * 1e6, num_tokens),
        run_key=manifest.run_key,
        lineage_uri=lineage_uri,
    )


def audit_metadata(report: AuditReport) -> Metadata:
    """Return what an audit counted."""
    return _known(
        num_rows=report.num_rows,
        num_generations=report.num_generations,
        num_rejects=report.num_rejects,
        num_parts=report.num_parts,
        num_bytes=report.num_bytes,
        is_input_checked=dg.MetadataValue.bool(report.is_input_checked),
        run_uri=report.run_uri,
    )


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """Return the columns of a table as Dagster shows them."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=str(field.type),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def _known(**values: float | str | dg.MetadataValue | None) -> Metadata:
    return {name: value for name, value in values.items() if value is not None}


def _json(counts: Mapping[str, int]) -> dg.MetadataValue:
    return dg.MetadataValue.json(dict(counts))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
