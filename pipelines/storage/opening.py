"""From a URI to a store."""

from collections.abc import Mapping
from pathlib import Path

from pipelines.storage.buckets import BucketStore
from pipelines.storage.connection import Connection
from pipelines.storage.local import LocalStore
from pipelines.storage.store import Store
from pipelines.storage.uris import Location, parse_uri
from schemas.errors import SettingsError


def open_store(
    uri: str, *, options: Mapping[str, str] | None = None, deadline_s: float = 120.0
) -> Store:
    """Return the store whose root is `uri`. No request is sent and no folder made yet.

    `options` are the provider's: endpoint and credentials. Without them the provider's own chain
    is asked (environment, credentials file, instance role). `deadline_s`, in seconds, is how
    long one call is tried again.

    Raises:
        SettingsError: `uri` is not one that is opened (see `parse_uri`), an option is not
            known, or the client for its scheme is not installed.
    """
    return open_location(parse_uri(uri), options=options or {}, deadline_s=deadline_s)


def open_location(location: Location, *, options: Mapping[str, str], deadline_s: float) -> Store:
    """Return the store whose root is `location`; see `open_store`."""
    if location.scheme == "file":
        if options:
            raise SettingsError(
                f"{location.uri}: a local store has no options, got {', '.join(sorted(options))}"
            )
        return LocalStore(Path(location.path), deadline_s=deadline_s)
    account = {"account_name": location.account} if location.account else {}
    connection = Connection(location.scheme, {**account, **options})
    return BucketStore(location, connection, deadline_s=deadline_s)
