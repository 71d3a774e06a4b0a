"""What becomes of a stored plan that cannot be read: of another release, damaged, or forged.

It is kept for diagnosis and counts as not there, so that its table is planned again. Nobody can say
what its approvals were given for, so that they are void.
"""

from __future__ import annotations

import logging

from reconciler.errors import UserError, first_line
from reconciler.plan.plan import Plan, parse_plan

log = logging.getLogger(__name__)


def parse_stored(body: str | bytes) -> Plan:
    """Return the plan of a stored document. Raises UserError if it cannot be read."""
    try:
        return parse_plan(body if isinstance(body, str) else body.decode())[0]
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError("this is not a plan document", details=(first_line(error),)) from error


def warn_set_aside(plan_id: str, table_uuid: str, why: str, approved: bool) -> None:
    void = "; its approval is void" if approved else ""
    log.warning(
        "the stored plan %s of table %s cannot be read and was set aside%s, the table is planned "
        "again: %s", plan_id, table_uuid, void, why[:300],
    )  # fmt: skip
