"""What holds of the project as a whole: its metadata, its locks, its commands, its files."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "pipelines", "jobs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
LOCKS = ("cpu", "gpu")
EXTRAS_OF_LOCKS = [
    (extra, device)
    for device in LOCKS
    for extra in ["core", *EXTRAS]
    if extra == device or extra not in LOCKS
]
ONLY_ON_THE_OTHER_DEVICE = {"pynvml": "nvidia-ml-py", "vllm": "vllm"}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def lock(device: str) -> dict[str, Version]:
    lines = (ROOT / "constraints" / f"{device}.txt").read_text("utf-8").splitlines()
    pins = [line.split("#")[0].strip() for line in lines]
    return {
        canonicalize_name(pin.split("==")[0]): Version(pin.split("==")[1]) for pin in pins if pin
    }


def outside_imports(path: Path) -> Iterator[str]:
    """Yield the top-level packages that a file imports and that are neither ours nor Python's."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            top = module.split(".")[0]
            if top not in {*PACKAGES, *sys.stdlib_module_names}:
                yield top


def distributions_imported(paths: Iterator[Path]) -> set[str]:
    providers = importlib.metadata.packages_distributions()
    modules = {module for path in paths for module in outside_imports(path)}
    return {
        canonicalize_name(providers.get(module, [ONLY_ON_THE_OTHER_DEVICE.get(module, module)])[0])
        for module in modules
    }


# ---------------------------------------------------------------------------- what Dagster loads


def test_no_table_of_pyproject_hides_the_workspace_from_dagster():
    assert not {"dagster", "dg"} & set(PROJECT["tool"])


def test_the_workspace_has_one_location_and_it_is_ours():
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text("utf-8"))

    assert workspace == {
        "load_from": [
            {"python_module": {"module_name": "jobs.definitions", "location_name": "promptmill"}}
        ]
    }


# ------------------------------------------------------------------------------------- commands


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):(?!=)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_ci_runs_the_command_that_a_person_runs():
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()

    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert lines[-1] == "exec make test"


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")), ids=lambda path: path.name)
def test_every_make_target_that_a_document_names_exists(document):
    named = re.findall(r"(?:`|^ {4}|^\$ |&& )make ([a-z]+)", document.read_text("utf-8"), re.M)

    assert set(named) <= make_targets()


def test_a_failing_command_before_a_pipe_fails_its_make_target(tmp_path):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    settings = [line for line in makefile.splitlines() if line.startswith((".SHELLFLAGS", "SHELL"))]
    (tmp_path / "Makefile").write_text("\n".join([*settings, "all:", "\tfalse | cat", ""]))

    made = subprocess.run(["make", "-C", tmp_path, "all"], capture_output=True, check=False)

    assert made.returncode != 0


# -------------------------------------------------------------------------- dependencies, locks


@pytest.mark.parametrize(("extra", "device"), EXTRAS_OF_LOCKS)
def test_every_dependency_is_pinned_in_each_lock_that_installs_it(extra, device):
    wanted = PROJECT["project"]["dependencies"] if extra == "core" else EXTRAS[extra]
    pins = lock(device)

    assert names(wanted) <= pins.keys()
    misfits = [
        f"{requirement}, pinned {pins[canonicalize_name(requirement.name)]}"
        for requirement in map(Requirement, wanted)
        if not requirement.specifier.contains(pins[canonicalize_name(requirement.name)])
    ]

    assert misfits == []


@pytest.mark.parametrize("device", LOCKS)
def test_a_lock_is_exact_versions_and_no_addresses(device):
    lines = (ROOT / "constraints" / f"{device}.txt").read_text("utf-8").splitlines()
    pins = [line.split("#")[0].strip() for line in lines]

    assert [pin for pin in pins if pin and not re.fullmatch(r"[a-z0-9-]+==[\w.+]+", pin)] == []


@pytest.mark.parametrize("device", LOCKS)
def test_a_lock_keeps_out_versions_that_overwrite_or_break_out_of_the_sandbox(device):
    pins = lock(device)

    assert pins["s3fs"] >= Version("2026.1")
    assert pins["jinja2"] >= Version("3.1.6")


def test_boto3_is_never_asked_for_beside_s3fs():
    assert "boto3" not in names([line for extra in EXTRAS.values() for line in extra])


def test_the_locks_differ_only_where_the_build_of_torch_decides():
    cpu, gpu = lock("cpu"), lock("gpu")

    differing = {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]}

    assert differing <= {"torch", "triton", "apache-tvm-ffi"}
    assert cpu["torch"].public == gpu["torch"].public


def test_the_cpu_lock_has_none_of_the_packages_that_break_transformers_beside_a_cpu_torch():
    assert not {"torchvision", "torchaudio", "torchcodec"} & lock("cpu").keys()


def test_every_dependency_has_its_reason_in_the_decisions():
    decision = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text("utf-8")
    first_cells = {line.split("|")[1] for line in decision.splitlines() if line.startswith("| ")}
    explained = set(re.findall(r"[a-z0-9-]+", " ".join(first_cells)))
    declared = [PROJECT["project"]["dependencies"], *EXTRAS.values()]

    assert {name for lines in declared for name in names(lines)} - explained == set()


# -------------------------------------------------------------------------------------- imports


def test_schemas_import_only_the_standard_library_pydantic_and_pyarrow():
    imported = {top for path in (ROOT / "schemas").rglob("*.py") for top in outside_imports(path)}

    assert imported <= {"pydantic", "pyarrow"}


def test_only_the_engines_import_more_than_the_core_dependencies():
    engines = ROOT / "pipelines" / "engines"
    paths = (
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not path.is_relative_to(engines)
    )

    assert distributions_imported(paths) - names(PROJECT["project"]["dependencies"]) == set()


def test_the_engines_import_only_what_the_core_and_their_extras_declare():
    declared = names([*PROJECT["project"]["dependencies"], *EXTRAS["cpu"], *EXTRAS["gpu"]])

    imported = distributions_imported((ROOT / "pipelines" / "engines").rglob("*.py"))

    assert imported - declared == set()


# ---------------------------------------------------------------------------------------- files


def test_the_changelog_begins_with_the_version_of_the_project():
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert versions[0] == PROJECT["project"]["version"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a Git checkout")
def test_no_file_of_the_repository_is_larger_than_8_mb():
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    paths = [ROOT / name for name in listed.split("\0") if name]
    assert [path for path in paths if path.is_file() and path.stat().st_size > 8_000_000] == []
