"""What makes a run this run: input contents, job file, model weights and code."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from schemas.checkpoints import Checkpoint
from schemas.errors import SettingsError
from schemas.ids import CODE_VERSION, RUN_SCHEME, content_id
from schemas.job_spec import JobSpec
from schemas.names import checked_segment
from schemas.runs import RunIdentity

PROFILE_SCHEME = "pf1"
PROMPT_SCHEME = "pt1"


def input_uri(job: JobSpec, partition: str | None) -> str:
    """Return where the job's prompts lie for this partition; local paths come out absolute.

    Raises:
        SettingsError: the job has partitions and none is named, or the other way round, or
            the partition's name could lead somewhere else.
    """
    uri = _filled(job.input.uri, job, partition)
    return uri if "://" in uri else str(Path(uri).absolute())


def output_uri(job: JobSpec, partition: str | None) -> str:
    """Return where the job's rows go for this partition; see `input_uri` for errors."""
    return _filled(job.output.uri, job, partition)


def _filled(uri: str, job: JobSpec, partition: str | None) -> str:
    if (partition is None) != (job.partitions is None):
        what = "has no partitions" if job.partitions is None else "has partitions: name one"
        raise SettingsError(f"job {job.name} {what}; got partition {partition!r}")
    key = "" if partition is None else checked_segment("partition", partition)
    if partition is not None and job.partitions is not None:
        job.partitions.check(partition)
    return uri.replace("{name}", job.name).replace("{partition}", key).rstrip("/")


def identify(
    job: JobSpec,
    checkpoint: Checkpoint,
    files: Sequence[tuple[str, str]],
    *,
    input_uri: str,
    partition: str | None,
    limit: int | None,
    engine: str,
) -> RunIdentity:
    """Return the identity of running this job on these (key, fingerprint) files and weights.

    Where files lie takes no part; their names do, for rows without an id are named by them.
    `engine` does, so that a rehearsal with echo is never taken for the real answers.
    """
    fields = job.identity()
    sampling = asdict(job.sampling.settings())
    constraint = {key: fields["output"][key] for key in ("labels", "json_schema")}  # type: ignore[index]
    constraint["questions"] = fields["questions"]
    profile = content_id(
        PROFILE_SCHEME,
        {
            "engine": engine,
            "weights": checkpoint.weights_hash,
            "sampling": sampling,
            "constraint": constraint,
        },
    )
    key = content_id(
        RUN_SCHEME,
        {
            "files": [list(pair) for pair in files],
            "job": fields,
            "weights": checkpoint.weights_hash,
            "engine": engine,
            "code": CODE_VERSION,
            "partition": partition,
            "limit": limit,
        },
    )
    return RunIdentity(
        run_key=key,
        profile_id=profile,
        prompt_id=content_id(PROMPT_SCHEME, {"prompt": fields["prompt"]}),
        job_name=job.name,
        job=json.dumps(fields, sort_keys=True),
        partition=partition,
        input_uri=input_uri,
        id_column=job.input.id_column,
    )
