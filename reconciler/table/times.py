"""Lengths of time in the unit of snapshots, logs and the ledger, for all who count in days."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
DAY_US = 1000 * DAY_MS
