import dataclasses
from typing import get_args, get_type_hints

import pytest

from schemas.generations import GENERATIONS, Generation
from schemas.lineage import LINEAGE, BatchLineage
from schemas.plans import PLAN_ROWS, PlanRow
from schemas.rejects import REJECT_CODES, REJECTS, Reject

TABLES = [
    (Generation, GENERATIONS),
    (Reject, REJECTS),
    (BatchLineage, LINEAGE),
    (PlanRow, PLAN_ROWS),
]


@pytest.mark.parametrize(("row", "table"), TABLES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_row_type_and_the_table_name_the_same_columns_in_the_same_order(row, table):
    assert [field.name for field in dataclasses.fields(row)] == table.names


@pytest.mark.parametrize(("row", "table"), TABLES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_column_is_nullable_exactly_where_its_row_may_hold_none(row, table):
    kinds = get_type_hints(row)
    may_be_none = {name for name, kind in kinds.items() if type(None) in get_args(kind)}

    assert {field.name for field in table if field.nullable} == may_be_none


@pytest.mark.parametrize(("row", "table"), TABLES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_table_says_its_name_and_version_in_its_file(row, table):
    assert set(table.metadata) == {b"promptmill.table", b"promptmill.version"}


def test_text_columns_hold_more_than_two_gigabytes():
    wide = {("generations", "text"), ("rejects", "text"), ("plan", "row_key")}
    tables = {"generations": GENERATIONS, "rejects": REJECTS, "plan": PLAN_ROWS}

    assert {str(tables[table].field(name).type) for table, name in wide} == {"large_string"}


def test_reject_codes_are_never_renamed():
    assert REJECT_CODES == (
        "NULL_PROMPT",
        "EMPTY_PROMPT",
        "NOT_TEXT",
        "TEMPLATE_ERROR",
        "PROMPT_TOO_LONG",
        "BAD_SAMPLING",
        "NULL_ID",
        "DUPLICATE_ID",
        "INVALID_OUTPUT",
        "ENGINE_CRASH",
        "TIMEOUT",
        "FILE_UNREADABLE",
    )
