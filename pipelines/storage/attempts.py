"""One storage call, tried until its deadline, and one named error when it is over.

Ours is the only retry loop: the clients' own loops are switched off where they can be, because
they know no deadline (s3fs 2026.9.0: 5 tries over botocore's 5, each with a read timeout) and
because boto's gives up after 8 SlowDown answers. Every call is safe to repeat: keys are written
once, or may be overwritten.

Errors are told apart by name and code, never by importing a client. That decides only how soon
we give up. Who won a `put_once` is decided by what lies there.
"""

import errno
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tenacity import RetryCallState, Retrying, stop_before_delay, wait_random_exponential

from pipelines.storage.secrets import scrubbed
from schemas.errors import PromptmillError, SettingsError, StorageError

Answer = TypeVar("Answer")
Doing = Literal["reading", "writing", "listing", "deleting", "asking for"]
Verdict = Literal["ours", "absent", "refused", "again"]

# Waits are drawn from 0 to min(8 s, 0.1 s · 2^n), "full jitter".
# Source: M. Brooker, Exponential Backoff and Jitter, AWS Architecture Blog, 2015.
_FIRST_WAIT_S = 0.1
_MAX_WAIT_S = 8.0
# A refusal is tried again twice: a new bucket, role or policy takes a moment to be known.
_MAX_REFUSALS = 3

# A rotated credentials file or a mended clock ends these, so they are waited for.
_PASSING_CODES = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestTimeTooSkewed", "TokenRefreshRequired"}
)
_REFUSED_CODES = frozenset(
    {
        "403", "401", "301",
        "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException", "InvalidAccessKeyId", "InvalidBucketName",
        "KeyTooLongError", "MethodNotAllowed", "NoSuchBucket", "PermanentRedirect",
        "SignatureDoesNotMatch",
        "AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch",
        "ContainerNotFound", "InvalidAuthenticationInfo", "NoAuthenticationInformation",
    }
)  # fmt: skip
_REFUSED_NAMES = frozenset(
    {
        "ClientAuthenticationError", "CredentialUnavailableError", "DefaultCredentialsError",
        "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound",
    }
)  # fmt: skip
_REFUSED_ERRNOS = frozenset(
    {errno.ENAMETOOLONG, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is being done, for the messages: at which key of which store."""

    doing: Doing
    key: str
    place: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.place}: {self.doing} `{self.key}`"


def until_deadline(call: Call, attempt: Callable[[], Answer], deadline_s: float) -> Answer:
    """Return what `attempt` returns; try it again until `deadline_s` seconds are over.

    No attempt is cut short, so the last one may end after the deadline by as much as one
    request may take.

    Raises:
        FileNotFoundError: something was read that is not there. Not tried again.
        SettingsError: the store refuses us: no permission, no such bucket, a read-only disk.
        StorageError: it still failed at the deadline; whether it took effect is not known.
    """
    started_s = time.monotonic()
    retrying = Retrying(
        retry=lambda state: _is_worth_another(call, state),
        stop=stop_before_delay(deadline_s),
        wait=wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_MAX_WAIT_S),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except Exception as error:  # every client has its own family of errors
        found = _verdict(call, error)
        if found in {"ours", "absent"}:
            raise
        # The client's error is not chained: its text may hold a signed URL or a header.
        if found == "refused":
            raise _refusal(call, error) from None
        raise StorageError(
            f"{call} failed for {time.monotonic() - started_s:.1f} s, the deadline is "
            f"{deadline_s:g} s; last: {_described(call, error)}\n"
            "  whether it took effect is not known; run again when the store answers, what was "
            "committed stays"
        ) from None


def _is_worth_another(call: Call, state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, Exception):  # an answer, or the process is asked to stop
        return False
    found = _verdict(call, error)
    return found == "again" or (found == "refused" and state.attempt_number < _MAX_REFUSALS)


def _verdict(call: Call, error: Exception) -> Verdict:
    """Return what to do about `error`; anything not known is tried again."""
    if isinstance(error, PromptmillError | TypeError | NameError | NotImplementedError):
        return "ours"
    code = _code(error)
    if code in _PASSING_CODES:
        return "again"
    is_refused = (
        code in _REFUSED_CODES
        or type(error).__name__ in _REFUSED_NAMES
        or isinstance(error, PermissionError)
        or (isinstance(error, OSError) and error.errno in _REFUSED_ERRNOS)
        or str(error).startswith("Forbidden")  # gcsfs 2026.10: a plain OSError for 403
    )
    if is_refused:
        return "refused"
    if isinstance(error, FileNotFoundError):
        # Nothing has to be there for a write but the bucket.
        return "refused" if call.doing == "writing" else "absent"
    return "again"


def _code(error: BaseException | None) -> str:
    """Return the provider's code of `error` or of what caused it, "" when there is none."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):
            return str(response.get("Error", {}).get("Code", ""))
        for name in ("error_code", "code", "status_code"):
            if found := getattr(error, name, None):
                return str(getattr(found, "value", found))
        error = error.__cause__
    return ""


def _described(call: Call, error: Exception) -> str:
    code = _code(error)
    text = scrubbed(" ".join(str(error).split()), call.secrets)[:300]
    return f"{type(error).__name__}{f' {code}' if code else ''}: {text}"


def _refusal(call: Call, error: Exception) -> SettingsError:
    if "://" not in call.place:
        return SettingsError(
            f"{call} was refused: {_described(call, error)}\n"
            "  the folder must be writable by this user, and no part of the key a file"
        )
    bucket = call.place.partition("://")[2].partition("/")[0]
    return SettingsError(
        f"{call} was refused: {_described(call, error)}\n"
        f"  bucket `{bucket}` must exist, and the credentials found must allow to read, write, "
        "delete and list in it (without the right to list, S3 says 403 for a missing key)"
    )
