"""A run on storage, as its readers see it: the manifest says what counts, parts are checked."""

from collections.abc import Iterator

import pyarrow as pa

from pipelines.ledger import MANIFEST_KEY, current_run, written_manifest
from pipelines.plan_parts import PLAN_KEY, written_plan
from pipelines.storage import Store
from pipelines.tables import read_own
from schemas.commits import Manifest, Part, PartKind
from schemas.errors import SettingsError, VerificationError
from schemas.generations import GENERATIONS
from schemas.ids import sha256_hex
from schemas.plans import Plan
from schemas.rejects import REJECTS

_MAX_NAMES_SHOWN = 8


def run_in(store: Store) -> Store:
    """Return the run in `store`: itself, or in an output with finished runs the current one.

    Raises:
        SettingsError: there is no run here; names what is.
    """
    names = store.list_names("")
    if {MANIFEST_KEY, f"{PLAN_KEY.split('/')[0]}/", "commits/"} & set(names):
        return store
    current = current_run(store)
    if current is not None:
        return store.child(current)
    shown = ", ".join(names[:_MAX_NAMES_SHOWN]) + (", …" if len(names) > _MAX_NAMES_SHOWN else "")
    raise SettingsError(
        f"no run at {store.uri}\n  expected: the folder of a run (`run1-…`), or of an output "
        f"with a finished run\n  found: {shown or 'nothing'}"
    )


def sealed(run: Store) -> tuple[Plan, Manifest]:
    """Return the plan and the manifest of a finished run.

    Raises:
        VerificationError: it is not finished.
    """
    plan, manifest = written_plan(run), written_manifest(run)
    if plan is None or manifest is None:
        raise VerificationError(f"{run.uri}: the run is not finished; the same command resumes it")
    return plan, manifest


def parts(manifest: Manifest, kind: PartKind) -> Iterator[Part]:
    """Yield the parts of this kind, in the order of the plan's batches."""
    return (part for one in manifest.commits for part in one.parts if part.kind == kind)


def read_part(run: Store, part: Part) -> pa.Table:
    """Return the rows of this part.

    Raises:
        VerificationError: it is absent, or its bytes are not those that were committed.
    """
    try:
        content = run.get(part.key)
    except FileNotFoundError:
        raise VerificationError(f"{part.key}: named by the manifest, and absent") from None
    if sha256_hex(content) != part.sha256:
        raise VerificationError(f"{part.key}: bytes differ from those that were committed")
    return read_own(content, GENERATIONS if part.kind == "generations" else REJECTS, key=part.key)
