"""Job files: YAML in folders, found by name; each becomes a `JobSpec` or one clear error."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from schemas.errors import SettingsError
from schemas.job_spec import JobSpec, parse_job
from schemas.names import nearest

Fields = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML without surprises: a key that stands twice is an error, not the last one's."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Fields:
    loader.flatten_mapping(node)
    found: Fields = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise SettingsError(
                f"a key in line {line} is not text; a value that begins with `{{` needs quotes: "
                'user: "{{ column }}"'
            )
        if key in found:
            raise SettingsError(f"key `{key}` stands twice, again in line {line}")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def job_paths(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the job files in these folders by name (the file's name without `.yaml`).

    Raises:
        SettingsError: a folder does not exist, or two files have the same name.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise SettingsError(f"PROMPTMILL_JOBS: {folder} is no folder")
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
            if path.stem in found:
                raise SettingsError(f"two job files {path.stem}: {found[path.stem]} and {path}")
            found[path.stem] = path
    return found


def find_job(name_or_path: str, folders: Sequence[Path]) -> Path:
    """Return the job file of this name, or at this path.

    Raises:
        SettingsError: there is none; names the nearest.
    """
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        path = Path(name_or_path)
        if not path.is_file():
            raise SettingsError(f"no job file {name_or_path}")
        return path
    paths = job_paths(folders)
    if name_or_path not in paths:
        raise SettingsError(f"no job `{name_or_path}`{nearest(name_or_path, paths)}")
    return paths[name_or_path]


def load_job(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """Return the job in this file, with `key.path=value` overrides in their places.

    Raises:
        SettingsError: not YAML, not a job, its name is not the file's, or the file sends all
            partitions to one output (an override may: then it is one partition's).
    """
    fields = overridden(read_fields(path), overrides)
    job = parse_job(fields, source=str(path))
    is_one_off = any(override.startswith("output.uri=") for override in overrides)
    if job.partitions is not None and "{partition}" not in job.output.uri and not is_one_off:
        raise SettingsError(
            f"{path}: the job has partitions, and output.uri does not hold {{partition}}: "
            "each partition would replace the one before for its readers"
        )
    if job.name != path.stem:
        raise SettingsError(f"{path}: `name` is {job.name}, the file's name says {path.stem}")
    return job


def read_fields(path: Path) -> Fields:
    """Return the YAML mapping in this file.

    Raises:
        SettingsError: it is not one; names line and column.
    """
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" line {mark.line + 1}, column {mark.column + 1}:"
        raise SettingsError(f"{path}:{where} {getattr(error, 'problem', error)}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: expected keys and values, found {type(found).__name__}")
    return found


def overridden(fields: Mapping[str, Any], overrides: Sequence[str]) -> Fields:
    """Return the fields with each `key.path=value` in its place; values are read as YAML.

    Raises:
        SettingsError: an override is not of that form, or goes through a value.
    """
    result = dict(fields)
    for override in overrides:
        path, separator, text = override.partition("=")
        keys = path.split(".")
        if not separator or not all(keys):
            raise SettingsError(f"--set {override!r}: expected key.path=value")
        try:
            value = yaml.load(text, Loader=_Loader)
        except yaml.YAMLError as error:
            raise SettingsError(f"--set {path}: {text!r} is not a YAML value") from error
        result = _with(result, keys, value, path)
    return result


def _with(fields: Mapping[str, Any], keys: Sequence[str], value: object, path: str) -> Fields:
    first, *rest = keys
    if not rest:
        return {**fields, first: value}
    inner = fields.get(first) or {}
    if not isinstance(inner, Mapping):
        raise SettingsError(f"--set {path}: `{first}` is a value, not a section")
    return {**fields, first: _with(inner, rest, value, path)}
