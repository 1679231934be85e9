"""When a run has too many rejects: one rule for the command line's exit code and for Dagster."""

from schemas.errors import TooManyRejectsError
from schemas.runs import RunReport


def too_many_rejects(report: RunReport, allowed: float | None) -> TooManyRejectsError | None:
    """Return why the run's rejects are more than the share `allowed` (0-1), or None.

    Without a limit only a run that answered nothing has too many; with one, also a run with
    an unreadable file: nobody knows how many rows it holds.
    """
    found = report.rejects_by_code
    told = ", ".join(f"{code} {count:,}" for code, count in found.items())
    num_files = found.get("FILE_UNREADABLE", 0)
    if allowed is None:
        if report.num_generations or not report.num_rows:
            return None
        return TooManyRejectsError(f"not one of {report.num_rows:,} rows was answered: {told}")
    if num_files and allowed < 1:
        return TooManyRejectsError(
            f"{num_files:,} file(s) could not be read, and how many rows they hold is not known; "
            f"rejects: {told}"
        )
    if report.num_rejects <= allowed * report.num_rows:
        return None
    return TooManyRejectsError(
        f"{report.num_rejects:,} of {report.num_rows:,} rows were rejected "
        f"({report.num_rejects / report.num_rows:.1%}: {told}); "
        f"limits.max_rejects allows {allowed:.1%}"
    )
