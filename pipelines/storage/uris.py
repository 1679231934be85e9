"""URIs: what may be opened, and nothing else.

A URI says where, never with what right: keys, tokens and endpoints come from the provider's
own chain or from `options`, so a job file can be shown to anyone and cannot send credentials
to another host. fsspec would open far more (`http:`, `memory:`, `simplecache::…`); none of it
gets that far.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NoReturn, get_args

from pipelines.storage.keys import key_fault
from pipelines.storage.secrets import scrubbed
from schemas.errors import SettingsError

Scheme = Literal["file", "s3", "gs", "abfs", "abfss"]

_ALLOWED = "a local path, file:///…, s3://bucket/…, gs://bucket/…, abfs://container/… or abfss://…"
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
# Other Azure clouds: `abfs://container/…` and the option `account_host`.
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]{3,24})\.(dfs|blob)\.core\.windows\.net")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a store's root lies."""

    scheme: Scheme
    authority: str  # "" for files, else the bucket; on Azure also container@account host
    bucket: str  # "" for files
    path: str  # absolute for files, else the key prefix without slashes at its ends
    account: str | None = None  # Azure storage account, when the URI names one

    @property
    def uri(self) -> str:
        """The location as it is written to records: a plain path for files."""
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")

    def split(self) -> "tuple[Location, str] | None":
        """Return the folder around the location and its last name; None at a root."""
        folder, _, name = self.path.rpartition("/")
        if not name:
            return None
        around = folder or ("/" if self.scheme == "file" else "")
        return replace(self, path=around), name


def parse_uri(uri: str) -> Location:
    """Return the location that `uri` names. Relative paths are made absolute here, once.

    Nothing is percent-decoded and no `~` is expanded.

    Raises:
        SettingsError: another scheme, chaining with `::`, a user name or password, a query, an
            endpoint, or a path that leaves the bucket; the message hides credentials.
    """
    if not uri.strip() or uri != uri.strip():
        _refuse(uri, "it is empty or has blanks at its ends")
    if any(ord(character) < ord(" ") for character in uri):
        _refuse(uri, "it holds a control character")
    if "::" in uri:
        _refuse(uri, "chained URLs (`::`) are not opened")
    found = _SCHEME.fullmatch(uri)
    if found is None:
        return _local(uri, uri)
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme not in get_args(Scheme):
        _refuse(uri, f"the scheme `{scheme}` is not opened (a file of that name: `./{scheme}:…`)")
    if not rest.startswith("//"):
        _refuse(uri, f"`{scheme}:` is followed by `//`")
    authority, _, path = rest.removeprefix("//").partition("/")
    if scheme == "file":
        if authority not in {"", "localhost"}:
            _refuse(uri, "file:// takes an absolute path: file:///folder/…")
        return _local(uri, f"/{path}")
    return _remote(uri, scheme, authority, path.removesuffix("/"))


def _local(uri: str, path: str) -> Location:
    if "\\" in path or path.startswith("~"):
        _refuse(uri, r"local paths are written out, without `~` and `\`")
    return Location(scheme="file", authority="", bucket="", path=str(Path(path).absolute()))


def _remote(uri: str, scheme: str, authority: str, path: str) -> Location:
    bucket, at, host = authority.partition("@")
    account = _AZURE_HOST.fullmatch(host)
    if at and not (scheme.startswith("abfs") and account):
        _refuse(
            uri,
            "only abfs(s)://container@account.dfs.core.windows.net/… has an `@`; credentials come "
            "from the environment or the credentials file of the provider",
        )
    if not _BUCKET.fullmatch(bucket) or ".." in bucket or _IP_ADDRESS.fullmatch(bucket):
        _refuse(uri, "the bucket is 2 to 222 letters, digits, `.`, `_`, `-`, without a port")
    if path and (fault := key_fault(path)):
        _refuse(uri, f"the path in the bucket is refused: {fault}")
    return Location(
        scheme=next(known for known in get_args(Scheme) if known == scheme),
        authority=authority,
        bucket=bucket,
        path=path,
        account=account["account"] if account else None,
    )


def _refuse(uri: str, why: str) -> NoReturn:
    raise SettingsError(f"cannot open {scrubbed(uri)[:200]!r}: {why}\n  allowed: {_ALLOWED}")
