"""Answers in JSON: which schemas can be asked for, and which answers are what they ask for.

An answer is taken as it is or refused; nothing is repaired.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jsonschema
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from schemas.errors import SettingsError
from schemas.generations import FinishReason
from schemas.prompts import Fault

MAX_SCHEMA_CHARACTERS = 64 * 1024
MAX_SCHEMA_DEPTH = 32


class JsonShape:
    """A JSON schema that a job asks for, checked."""

    def __init__(self, schema: Mapping[str, object], *, where: str) -> None:
        """Check the schema itself; `where` names its key in the job file.

        Raises:
            SettingsError: it is no JSON schema, or too large to be asked for, or refers to
                what does not stand in it.
        """
        try:
            self.text = json.dumps(schema, sort_keys=True, allow_nan=False)
            depth = _depth(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise SettingsError(f"{where} holds what JSON does not have: {error}") from error
        if len(self.text) > MAX_SCHEMA_CHARACTERS or depth > MAX_SCHEMA_DEPTH:
            raise SettingsError(
                f"{where} has {len(self.text)} characters and {depth} levels; an engine takes up "
                f"to {MAX_SCHEMA_CHARACTERS} and {MAX_SCHEMA_DEPTH}"
            )
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise SettingsError(f"{where} is no JSON schema: {error.message}") from error
        resource = DRAFT202012.create_resource(dict(schema))
        for reference in _references(schema):
            _check_reference(resource, reference, where)
        # An empty registry: what a reference names is never fetched.
        self._validator = jsonschema.Draft202012Validator(schema, registry=Registry())

    def fault(self, text: str, finish_reason: FinishReason) -> Fault | None:
        """Return why this answer is not acceptable, None if it is; the answer is not quoted.

        Twice the same key, NaN and infinities are not acceptable: readers of JSON differ on
        what they mean, so a value that was validated might not be the value that is read.
        """
        if finish_reason == "length":
            return Fault("INVALID_OUTPUT", "JSON cut short at max_tokens")
        try:
            found = json.loads(text, parse_constant=_no_number, object_pairs_hook=_distinct)
        except (ValueError, RecursionError) as error:
            return Fault("INVALID_OUTPUT", str(error) if type(error) is _NotAllowed else "not JSON")
        error = next(iter(self._validator.iter_errors(found)), None)
        if error is None:
            return None
        return Fault("INVALID_OUTPUT", f"fails the schema at {error.json_path}: {error.validator}")


class _NotAllowed(ValueError):
    """JSON by Python's reading, and not by all."""


def _no_number(name: str) -> NoReturn:
    raise _NotAllowed(f"JSON has no {name}")


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotAllowed("an object has a key twice")
    return found


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(inner, str) or not hasattr(inner, "__iter__"):
        return 0
    return 1 + max(map(_depth, inner), default=0)  # pyright: ignore[reportArgumentType]


def _references(schema: object) -> Iterator[str]:
    """Yield every `$ref` and `$dynamicRef` in the schema."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
                yield value
            yield from _references(value)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from _references(value)


def _check_reference(resource: Resource[Any], reference: str, where: str) -> None:
    if not reference.startswith("#"):
        raise SettingsError(
            f"{where} refers to {reference[:200]}; nothing is fetched: put it under $defs and "
            "refer to #/$defs/…"
        )
    try:
        Registry().with_resource("", resource).resolver("").lookup(reference)
    except Unresolvable as error:
        raise SettingsError(f"{where} refers to {reference[:200]}, which is not in it") from error
