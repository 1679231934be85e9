"""fsspec's file systems: one for each process, made when it is first needed.

fsspec runs its requests on a thread of its own, which does not survive a fork, so a child makes
its own file system. The parent's is kept in the child but not used: dropping it there would
close the parent's sockets.
"""

import importlib
import importlib.util
import os
from collections.abc import Mapping
from typing import Any, Protocol, cast

from schemas.errors import SettingsError
from schemas.names import nearest


class FileSystem(Protocol):
    """The calls of an fsspec file system that are used here; paths are `bucket/key`.

    Left alone on purpose: `cat`, `rm`, `ls` with cache and all that expands globs, because a
    key may hold a `*`; `exists`, which is true for folders.
    """

    def cat_file(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes from `start` to before `end`."""
        ...

    def pipe_file(self, path: str, value: bytes, *, mode: str, **options: int) -> object:
        """Write `value`; mode "create" fails if `path` is there."""
        ...

    def rm_file(self, path: str) -> None:
        """Delete one object."""
        ...

    def info(self, path: str) -> Mapping[str, Any]:
        """Return what the provider says about `path`, an object or a folder."""
        ...

    def find(self, path: str, *, prefix: str, detail: bool) -> Mapping[str, Mapping[str, Any]]:
        """Return what lies below `path` and begins with `prefix`."""
        ...

    def ls(self, path: str, *, detail: bool) -> list[Mapping[str, Any]]:
        """Return what lies directly in `path`."""
        ...

    def invalidate_cache(self) -> None:
        """Forget all listings."""
        ...


# Scheme → (module, extra of promptmill, options).
_CLIENTS = {
    "s3": ("s3fs", "s3", ("endpoint_url", "key", "profile", "region", "secret", "token")),
    "gs": ("gcsfs", "gcs", ("endpoint_url", "project", "token")),
    "abfs": (
        "adlfs",
        "azure",
        (
            *("account_host", "account_key", "account_name", "client_id", "client_secret"),
            *("connection_string", "sas_token", "tenant_id"),
        ),
    ),
}
_NOT_SECRET = {"account_host", "account_name", "endpoint_url", "profile", "project", "region"}


class Connection:
    """The way to one provider: what is needed to make its file system, and those made."""

    def __init__(self, scheme: str, options: Mapping[str, str]) -> None:
        self.scheme = scheme.removesuffix("s") if scheme == "abfss" else scheme
        module, extra, names = _CLIENTS[self.scheme]
        if importlib.util.find_spec(module) is None:
            raise SettingsError(
                f"{scheme}:// needs {module}, which is not installed\n"
                f"  pip install 'promptmill[{extra}]'"
            )
        for name in options:
            if name not in names:
                raise SettingsError(f"{scheme}:// has no option `{name}`{nearest(name, names)}")
        self._options = dict(options)
        self._made: dict[int, FileSystem] = {}  # by process id

    def __repr__(self) -> str:
        return f"Connection({self.scheme!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no message may hold."""
        return tuple(value for name, value in self._options.items() if name not in _NOT_SECRET)

    def file_system(self) -> FileSystem:
        """Return this process's file system."""
        pid = os.getpid()
        if pid not in self._made:
            # Two threads may both make one; setdefault lets one be used and the other be idle.
            self._made.setdefault(pid, self._new())
        return self._made[pid]

    def _new(self) -> FileSystem:
        fsspec = importlib.import_module("fsspec")
        given = dict(self._options)
        tuning = _s3_tuning(given.pop("region", None)) if self.scheme == "s3" else {}
        made = fsspec.filesystem(
            self.scheme,
            # Another process writes too, so nothing that was listed is believed later; and an
            # instance shared with other code of this process would be reconfigured here.
            use_listings_cache=False,
            skip_instance_cache=True,
            **given,
            **tuning,
        )
        if self.scheme == "s3":
            made.retries = 1
        return cast("FileSystem", made)


def _s3_tuning(region: str | None) -> dict[str, Any]:
    """Return settings for s3fs that leave retrying to us.

    max_concurrency=1 makes a read one GET. With the default of 10, s3fs 2026.9.0 asks for the
    size first and reads more than 50 MB in pieces without If-Match: an object that is
    overwritten meanwhile comes back as a mixture, and a short piece as zeros.
    """
    return {
        "max_concurrency": 1,
        "config_kwargs": {
            "connect_timeout": 10,
            "read_timeout": 60,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "max_pool_connections": 32,
        },
        "client_kwargs": {"region_name": region} if region else {},
    }
