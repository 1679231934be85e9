"""A backfill as a person starts it: a real webserver and daemon, three days, and a browser."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.ledger import current_run, written_manifest
from pipelines.storage import open_store
from schemas.commits import Manifest
from tests.jobs.dagster_server import ROOT, DagsterServer, dagster_server
from tests.jobs.small_jobs import copy_tickets, write_model

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = "summarize_tickets"
DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")
KEYS = tuple({"path": [JOB, table]} for table in ("plan", "generations", "lineage"))
CHECKS = ("every_prompt_is_a_generation_or_a_reject", "the_manifest_matches_the_parts")
CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]

LAUNCH = """mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""
BACKFILL = """query($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } }
}"""
RUNS = """query($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { runs(limit: 10) { status startTime endTime tags { key value } } }
  }
}"""
MATERIALIZATIONS = """query($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) { ... on Asset { assetMaterializations { partition metadataEntries {
    label
    ... on IntMetadataEntry { intRepr }
    ... on FloatMetadataEntry { floatValue }
    ... on TextMetadataEntry { text }
    ... on JsonMetadataEntry { jsonString }
  } } } }
}"""
EXECUTIONS = """query($key: AssetKeyInput!, $name: String!) {
  assetCheckExecutions(assetKey: $key, checkName: $name, limit: 10) {
    status
    evaluation { success partition }
  }
}"""


@dataclass(frozen=True)
class Backfill:
    """Three days of the sample job, backfilled by a server that still runs."""

    server: DagsterServer
    backfill_id: str
    status: str
    outputs: Path

    def manifest(self, day: str) -> Manifest:
        output = open_store(str(self.outputs / JOB / day))
        found = written_manifest(output.child(current_run(output) or ""))
        assert found is not None
        return found

    def shown(self, table: str) -> dict[str, dict[str, Any]]:
        """Return what Dagster shows of each partition of an asset: partition → metadata."""
        found = self.server.ask(MATERIALIZATIONS, key={"path": [JOB, table]})
        return {
            one["partition"]: {entry["label"]: value_of(entry) for entry in one["metadataEntries"]}
            for one in found["assetMaterializations"]
        }


def value_of(entry: dict[str, Any]) -> Any:
    if "intRepr" in entry:
        return int(entry["intRepr"])
    if "jsonString" in entry:
        return json.loads(entry["jsonString"])
    return entry.get("floatValue", entry.get("text"))


@pytest.fixture(scope="module")
def backfill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfill]:
    folder = tmp_path_factory.mktemp("ui")
    write_sample_job(folder)
    environment = {
        "PROMPTMILL_JOBS": str(folder / "jobs"),
        "PROMPTMILL_CACHE": str(folder / "cache"),
        "PROMPTMILL_ENGINE": "echo",
    }
    params = {"assetSelection": KEYS, "partitionNames": DAYS, "allPartitions": False}
    with dagster_server(folder / "home", environment) as server:
        launched = server.ask(LAUNCH, params=params)
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        backfill_id = launched["backfillId"]
        over = {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}
        status = server.wait_for(BACKFILL, "status", over, within_s=600, id=backfill_id)
        yield Backfill(server, backfill_id, status, folder / "outputs")


def write_sample_job(folder: Path) -> None:
    """Write the sample job with its input, its output and a small model in this folder."""
    fields = yaml.safe_load((ROOT / "jobs" / f"{JOB}.yaml").read_text())
    fields["input"]["uri"] = f"{copy_tickets(folder)}/{{partition}}.parquet"
    fields["output"]["uri"] = f"{folder}/outputs/{{name}}/{{partition}}"
    fields["model"] = write_model(folder / "model")
    (folder / "jobs").mkdir()
    (folder / "jobs" / f"{JOB}.yaml").write_text(yaml.safe_dump(fields))


def test_a_backfill_is_one_run_per_day_one_after_the_other(backfill):
    runs = backfill.server.ask(RUNS, id=backfill.backfill_id)["runs"]

    tags = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in runs]
    times = sorted((run["startTime"], run["endTime"]) for run in runs)
    assert backfill.status == "COMPLETED_SUCCESS"
    assert sorted(tag["dagster/partition"] for tag in tags) == [*DAYS]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def test_the_numbers_of_each_day_are_those_of_its_manifest(backfill):
    shown = backfill.shown("generations")

    assert sorted(shown) == [*DAYS]
    for day, numbers in shown.items():
        manifest = backfill.manifest(day)
        lineage = [commit.lineage for commit in manifest.commits]
        assert numbers["run_key"] == manifest.run_key
        assert numbers["num_rows"] == manifest.num_rows > 0
        assert numbers["num_generations"] == manifest.num_generations
        assert numbers["num_rejects"] == manifest.num_rejects
        assert numbers["rejects_by_code"] == manifest.rejects_by_code
        assert numbers["num_batches"] == len(lineage)
        for count in ("num_requests", "num_prompt_tokens", "num_cached_tokens"):
            assert numbers[count] == sum(getattr(one, count) for one in lineage)
        assert numbers["num_output_tokens"] == sum(one.num_output_tokens for one in lineage)
        assert numbers["usd"] > 0


def test_plan_and_lineage_are_materialized_for_each_day(backfill):
    plans, lineages = backfill.shown("plan"), backfill.shown("lineage")

    assert (sorted(plans), sorted(lineages)) == ([*DAYS], [*DAYS])
    for day in DAYS:
        assert Path(lineages[day]["lineage_uri"]).is_file()
        assert plans[day]["run_key"] == lineages[day]["run_key"]


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_passed_for_each_day(backfill, check):
    found = backfill.server.ask(EXECUTIONS, key=KEYS[1], name=check)

    days = {
        one["evaluation"]["partition"]: (one["status"], one["evaluation"]["success"])
        for one in found
    }
    assert len(found) == len(DAYS)
    assert days == dict.fromkeys(DAYS, ("SUCCEEDED", True))


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip("chromium is not installed: make chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        opened = browser.new_page(viewport={"width": 1440, "height": 900})
        opened.set_default_timeout(120_000)
        yield opened
        browser.close()


def test_the_asset_graph_shows_the_three_tables_of_the_job(backfill, page, tmp_path):
    page.goto(f"{backfill.server.url}/locations/promptmill/asset-groups/{JOB}/lineage")

    page.get_by_text("generations", exact=True).first.wait_for()
    page.get_by_text("2 / 2 Passed").wait_for()
    page.screenshot(path=tmp_path / "graph.png")
    shown = page.locator("body").inner_text()
    assert JOB in shown
    assert {"plan", "generations", "lineage"} <= set(shown.split())


def test_the_page_of_a_day_shows_its_numbers(backfill, page, tmp_path):
    day = DAYS[1]
    page.goto(f"{backfill.server.url}/assets/{JOB}/generations?view=partitions&partition={day}")

    page.get_by_text("num_generations", exact=True).first.wait_for()
    page.screenshot(path=tmp_path / "day.png")
    shown = page.locator("body").inner_text()
    manifest = backfill.manifest(day)
    assert JOB in shown
    assert str(manifest.num_generations) in shown
    assert manifest.run_key in shown
