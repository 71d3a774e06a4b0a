"""Which team plays in the demo on this machine."""

from __future__ import annotations

from reconciler.demo.data import Place
from reconciler.demo.duckdb_team import DuckDbTeam
from reconciler.demo.spark_team import SparkTeam
from reconciler.demo.team import Team
from reconciler.errors import UserError
from reconciler.spark.session import runtime


def team_of(place: Place, quick: bool) -> tuple[Team, str]:
    """Return the team for this machine, and why it is that one: Spark's if Spark can run here and
    the demo need not be quick."""
    if quick:
        return DuckDbTeam(place), "a quick demo starts no JVM; without --quick, Spark queries it"
    try:
        runtime.spark_home()
    except UserError:
        return DuckDbTeam(place), "Spark is not installed"
    try:
        runtime.check_java()
    except UserError:
        return DuckDbTeam(place), f"no JDK {runtime.MIN_JAVA} with jdk.incubator.vector was found"
    return SparkTeam(place), "Spark and a JDK were found"
