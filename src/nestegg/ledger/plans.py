"""Plans in the ledger: kept under their digest, once, and read as if a stranger had written them."""

from __future__ import annotations

import zlib

from sqlalchemy import Connection, insert, select

from nestegg.errors import InputError, VerificationError
from nestegg.ledger.tables import plans
from nestegg.planning import Plan, parse_plan


def store_plan(connection: Connection, plan: Plan) -> None:
    """Keep a plan under its digest, once."""
    if not connection.execute(select(plans.c.digest).where(plans.c.digest == plan.digest)).first():
        connection.execute(insert(plans).values(digest=plan.digest, content=zlib.compress(plan.to_json().encode())))


def load_stored_plan(connection: Connection, digest: str, place: str) -> Plan:
    """The plan of a digest, and no other."""
    content = connection.execute(select(plans.c.content).where(plans.c.digest == digest)).scalar()
    source = f"{place}: plan {digest[:16]}"
    try:
        plan = parse_plan(zlib.decompress(content or b"").decode(), source)
    except (zlib.error, UnicodeDecodeError, InputError):
        raise VerificationError(f"{source} is missing or damaged.") from None
    if plan.digest != digest:
        raise VerificationError(f"{source} was replaced by another.")
    return plan
