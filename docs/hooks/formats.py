"""Files that nestegg writes and reads, from the code that does it."""

from __future__ import annotations

from dataclasses import fields

from docs.hooks.fields import Field, fields_of, kind_of, meanings, table
from nestegg.configuration.config import Side
from nestegg.configuration.terms_file import TermsRecord
from nestegg.experiments.cells import Cell
from nestegg.flower.enrolment import Member
from nestegg.flower.guard import _BudgetFile
from nestegg.flower.terms import Order
from nestegg.ledger.schema import metadata
from nestegg.planning.plan_file import _GroupRecord, _PlanRecord
from nestegg.report.statement import Statement
from nestegg.schema import Section

RECORDS: dict[str, type[Section]] = {
    "plan": _PlanRecord,
    "plan-group": _GroupRecord,
    "terms": TermsRecord,
    "side": Side,
    "order": Order,
    "budget": _BudgetFile,
    "member": Member,
    "cell": Cell,
}


def record(name: str) -> str:
    """Return the table of a record that is read by a schema."""
    model = RECORDS[name]
    return table(f"file format {name}", fields_of(model), meanings(model.__name__, model))


def statement() -> str:
    """Return the table of statement.json."""
    from typing import get_type_hints

    hints = get_type_hints(Statement)
    rows = [Field(one.name, kind_of(hints[one.name]), "must be given") for one in fields(Statement)]
    return table("file format statement", rows, meanings("Statement", Statement))


def ledger() -> str:
    """Return a table for each table of a ledger's database."""
    parts = []
    for one in metadata.sorted_tables:
        rows = [Field(column.name, str(column.type).lower(), "must be given") for column in one.columns]
        parts.append(f"### `{one.name}`\n\n{table(f'ledger table {one.name}', rows, meanings(one.name))}\n")
    return "\n".join(parts)
