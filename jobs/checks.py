"""Checks: sentences about a job's generations that can be false; each stops what comes after.

Both read every byte of the run that readers of the partition read, and trust nothing.
"""

import warnings
from collections.abc import Callable, Sequence

import dagster as dg

from jobs.assets import current_manifest, generations_key
from jobs.metadata import audit_metadata
from jobs.partitions import partition_of, partitions_of
from jobs.resources import told_to_dagster
from pipelines.audit import AuditReport, audit
from schemas.errors import VerificationError
from schemas.job_spec import JobSpec

_MAX_SHOWN = 20


def checks_of(job: JobSpec) -> list[dg.AssetChecksDefinition]:
    """Return the job's checks, with the partitions of its assets."""

    @_check(job, "Each row of the input is in generations or in rejects, and once.")
    def every_prompt_is_a_generation_or_a_reject(
        context: dg.AssetCheckExecutionContext,
    ) -> dg.AssetCheckResult:
        report = _audited(job, context)
        return _result(report, _row_faults(report))

    @_check(job, "Each part has the bytes, rows and columns that its commit and manifest say.")
    def the_manifest_matches_the_parts(
        context: dg.AssetCheckExecutionContext,
    ) -> dg.AssetCheckResult:
        report = _audited(job, context)
        return _result(report, _part_faults(report))

    return [every_prompt_is_a_generation_or_a_reject, the_manifest_matches_the_parts]


def _check(
    job: JobSpec, description: str
) -> Callable[[Callable[..., dg.AssetCheckResult]], dg.AssetChecksDefinition]:
    """Return Dagster's decorator for a check that stops what comes after it."""

    def decorated(function: Callable[..., dg.AssetCheckResult]) -> dg.AssetChecksDefinition:
        # `partitions_def` of a check is in preview in Dagster 1.13 and warns at every load. It
        # is worth that (docs/decisions/0006). Remove this when it is out of preview.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.PreviewWarning)
            return dg.asset_check(
                asset=generations_key(job),
                description=description,
                blocking=True,
                partitions_def=partitions_of(job),
            )(function)

    return decorated


def _audited(
    job: JobSpec, context: dg.AssetCheckExecutionContext
) -> AuditReport | VerificationError:
    """Return what an audit of the current run found, or why it cannot even be read."""
    with told_to_dagster(context):
        try:
            store, _ = current_manifest(job, partition_of(context))
            return audit(store)
        except VerificationError as error:
            return error


def _result(report: AuditReport | VerificationError, faults: Sequence[str]) -> dg.AssetCheckResult:
    numbers = {} if isinstance(report, VerificationError) else audit_metadata(report)
    more = len(faults) - _MAX_SHOWN
    shown = [*faults[:_MAX_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    return dg.AssetCheckResult(
        passed=not faults,
        description="\n".join(shown) or None,
        metadata={**numbers, "num_faults": len(faults)},
    )


def _row_faults(report: AuditReport | VerificationError) -> list[str]:
    """Return the faults that are about rows: those lines begin with how many rows.

    Any other fault is one here too: the audit then compares no rows, and what was not
    compared is not known to be complete.
    """
    if isinstance(report, VerificationError):
        return [str(report)]
    about_rows = [fault for fault in report.faults if _is_about_rows(fault)]
    return about_rows or [f"rows were not compared: {fault}" for fault in report.faults]


def _part_faults(report: AuditReport | VerificationError) -> list[str]:
    """Return the faults that are about what lies on storage: those lines begin with its key."""
    if isinstance(report, VerificationError):
        return [str(report)]
    return [fault for fault in report.faults if not _is_about_rows(fault)]


def _is_about_rows(fault: str) -> bool:
    return fault.split(" ", 1)[0].isdigit()
