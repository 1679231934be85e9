"""Assets: a job's plan, its generations and its lineage, as Dagster shows and starts them.

One run does one partition, the whole chain (docs/decisions/0006). What a step does is in
`pipelines.run`; it is imported inside the step, so that loading definitions stays quick.
"""

from collections.abc import Callable
from typing import Any

import dagster as dg

from jobs.metadata import (
    JOB_TAG,
    column_schema,
    lineage_metadata,
    plan_metadata,
    run_metadata,
)
from jobs.partitions import partition_of, partitions_of
from jobs.rejects import too_many_rejects
from jobs.resources import Machine, told_to_dagster
from pipelines.identity import output_uri
from pipelines.ledger import LINEAGE_KEY, current_run, written_manifest
from pipelines.storage import Store, open_store
from pipelines.trace import trace
from schemas.commits import Manifest
from schemas.errors import SettingsError
from schemas.generations import GENERATIONS
from schemas.ids import CODE_VERSION
from schemas.job_spec import JobSpec
from schemas.lineage import LINEAGE
from schemas.runs import RunReport

DEVICE_POOL = "gpu"
"""Runs that hold a device; its limit is the number of devices: one (dagster.yaml)."""


def assets_of(job: JobSpec) -> list[dg.AssetsDefinition]:
    """Return the job's assets in the order in which a run makes them.

    Raises:
        SettingsError: the job's partitions or its timezone are not such.
        DagsterInvalidDefinitionError: the job's name is a word that Dagster keeps for itself.
    """
    return [_plan(job), _generations(job), _lineage(job)]


def generations_key(job: JobSpec) -> dg.AssetKey:
    """Return the key of the asset that holds the job's answers."""
    return dg.AssetKey([job.name, "generations"])


def _plan(job: JobSpec) -> dg.AssetsDefinition:
    @_asset(
        job,
        "plan",
        description="How the prompts are cut into batches; written once per run.",
        kinds={"parquet"},
    )
    def plan(context: dg.AssetExecutionContext, machine: Machine) -> dg.MaterializeResult[Any]:
        from pipelines.plan_parts import written_plan
        from pipelines.run import make_plan
        from pipelines.work import prepare

        with told_to_dagster(context):
            work = prepare(job, machine.tools(context), partition=partition_of(context))
            made = written_plan(work.store) or make_plan(work)
        return dg.MaterializeResult(metadata={**plan_metadata(made, work.store.uri)})

    return plan


def _generations(job: JobSpec) -> dg.AssetsDefinition:
    @_asset(
        job,
        "generations",
        description=job.description or "One answer for every prompt, or the reason why not.",
        metadata={"dagster/column_schema": column_schema(GENERATIONS)},
        kinds={"parquet", "vllm"},
        deps=[dg.AssetKey([job.name, "plan"])],
        pool=DEVICE_POOL,
    )
    def generations(
        context: dg.AssetExecutionContext, machine: Machine
    ) -> dg.MaterializeResult[Any]:
        from pipelines.run import run

        with told_to_dagster(context):
            report = run(job, machine.tools(context), partition=partition_of(context))
        _warn_of_rejects(context, job, report)
        return dg.MaterializeResult(metadata={**run_metadata(report)})

    return generations


def _lineage(job: JobSpec) -> dg.AssetsDefinition:
    @_asset(
        job,
        "lineage",
        description="What each batch was made from and by, what it took and what it cost.",
        metadata={"dagster/column_schema": column_schema(LINEAGE)},
        kinds={"parquet"},
        deps=[generations_key(job)],
    )
    def lineage(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        with told_to_dagster(context):
            store, manifest = current_manifest(job, partition_of(context))
            trace(store, manifest)
        uri = f"{store.uri}/{LINEAGE_KEY}"
        return dg.MaterializeResult(metadata={**lineage_metadata(manifest, uri)})

    return lineage


def _asset(
    job: JobSpec,
    name: str,
    **own: Any,  # noqa: ANN401 - the arguments of dg.asset
) -> Callable[[Callable[..., dg.MaterializeResult[Any]]], dg.AssetsDefinition]:
    """Return Dagster's decorator with what the assets of a job share, and this one's own.

    No asset has a backfill policy: docs/decisions/0006.
    """
    return dg.asset(
        key=[job.name, name],
        group_name=job.name,
        partitions_def=partitions_of(job),
        code_version=CODE_VERSION,
        tags={JOB_TAG: job.name, "promptmill/weights": job.model.weights},
        **own,
    )


def current_manifest(job: JobSpec, partition: str | None) -> tuple[Store, Manifest]:
    """Return the run that readers of this partition read, and its manifest.

    Raises:
        SettingsError: no run of this partition was finished yet.
        VerificationError: the manifest is not what was written.
    """
    output = open_store(output_uri(job, partition))
    run_key = current_run(output)
    store = output.child(run_key or "")
    manifest = None if run_key is None else written_manifest(store)
    if manifest is None:
        raise SettingsError(
            f"{output.uri} holds no finished run of {job.name}; materialize "
            f"{generations_key(job).to_user_string()} first"
        )
    return store, manifest


def _warn_of_rejects(context: dg.AssetExecutionContext, job: JobSpec, report: RunReport) -> None:
    fault = too_many_rejects(report, job.limits.max_rejects)
    if fault is not None:
        context.log.warning(str(fault))
