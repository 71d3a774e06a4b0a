"""The Java side of the jobs: jars with their checksums, the cache that holds them, the JDK.

The Iceberg runtime is pinned only here. It is downloaded once, by the Ivy that pyspark includes,
into a cache directory, and checked before it gets its final name. If a Spark already has a runtime
on its class path, that one is used. Used by `session`, and by tests for their own servers.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from reconciler.errors import EXIT_OK, EXIT_USER, ReconcilerError, UnavailableError, UserError

MIN_JAVA = 17


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact by its public coordinates."""

    organisation: str
    """Maven's group id."""
    module: str
    """Maven's artifact id."""
    revision: str
    """Its version."""
    sha256: str
    """SHA-256 of the file, in hexadecimal."""
    classifier: str = ""
    """Maven's classifier, "" for none."""

    @property
    def file_name(self) -> str:
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.module}-{self.revision}{suffix}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.organisation}:{self.module}:{self.revision}"


ICEBERG_RUNTIME = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
SQLITE_JDBC = Jar(
    "org.xerial",
    "sqlite-jdbc",
    "3.54.1.0",
    "f8dce420a6016278497f4f0560f65602b9db858de141b541cf91a4644ebe4639",
)
AWS_BUNDLE = Jar(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.12.0",
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
IMAGE_JARS = (ICEBERG_RUNTIME, AWS_BUNDLE)
"""The jars of the job image beside Spark's own: executors download nothing."""


def session_jars(conf: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the local jars that a session with this Spark configuration still needs on its class
    path."""
    wanted: list[Jar] = []
    if not _provided("iceberg-spark-runtime-", conf):
        wanted.append(ICEBERG_RUNTIME)
    if any("jdbc:sqlite:" in value for value in conf.values()) and not _provided(
        "sqlite-jdbc", conf
    ):
        wanted.append(SQLITE_JDBC)
    if any(value.endswith(".S3FileIO") for value in conf.values()) and not _provided(
        "iceberg-aws-bundle", conf
    ):
        wanted.append(AWS_BUNDLE)
    return fetch(wanted)


def _provided(artifact: str, conf: Mapping[str, str]) -> bool:
    """Whether the user's Spark has the artifact: among its jars, or named in its settings."""
    settings = {**spark_defaults(), **conf}
    named = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
    if any(artifact in settings.get(key, "") for key in named):
        return True
    return any(spark_home().glob(f"jars/{artifact}*.jar"))


def spark_home() -> Path:
    """Return SPARK_HOME if the user set one, else the distribution inside the pyspark package."""
    chosen = os.environ.get("SPARK_HOME")
    if chosen:
        return Path(chosen)
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise UserError(
            "apply needs Spark, which is not installed",
            details=("observe and plan work without it.",),
            do='pip install "table-layout-reconciler[spark]"',
        )
    return Path(package.origin).parent


def spark_defaults() -> dict[str, str]:
    """Return the user's spark-defaults.conf: of SPARK_CONF_DIR, else of SPARK_HOME; {} without
    one."""
    chosen, home = os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")
    directory = Path(chosen) if chosen else Path(home) / "conf" if home else None
    if directory is None or not (directory / "spark-defaults.conf").is_file():
        return {}
    path = directory / "spark-defaults.conf"
    settings = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\s*([^#\s=]+)(?:\s+|\s*=\s*)(.*\S)", line)
        if match:
            settings[match.group(1)] = match.group(2)
    return settings


def cache_directory() -> Path:
    """Return $LAYOUTCTL_CACHE, else layoutctl/jars below the user's cache directory."""
    chosen = os.environ.get("LAYOUTCTL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "layoutctl" / "jars"


def fetch(jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Return the paths of the jars in the cache; missing ones are downloaded, checked, then
    renamed."""
    directory = cache_directory()
    paths = tuple(directory / jar.file_name for jar in jars)
    if all(path.is_file() for path in paths):
        return paths
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot create the cache directory {directory}",
            details=(str(error),),
            do="set LAYOUTCTL_CACHE to a directory that can be written",
        ) from error
    with _exclusive(directory / ".lock"):
        missing = [jar for jar in jars if not (directory / jar.file_name).is_file()]
        if missing:
            _download(missing, directory)
    return paths


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold an advisory lock, so that processes that start together download once."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(jars: Sequence[Jar], directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as scratch:
        root = Path(scratch)
        _run_ivy(jars, root)
        for jar in jars:
            fetched = root / "out" / jar.file_name
            found = _sha256(fetched) if fetched.is_file() else "nothing"
            if found != jar.sha256:
                raise UserError(
                    f"{jar.coordinates} does not have the pinned checksum",
                    details=(f"expected sha256 {jar.sha256}", f"found    {found}"),
                    do="check the repository that LAYOUTCTL_IVY_SETTINGS or a proxy points to",
                )
            fetched.replace(directory / jar.file_name)


def _run_ivy(jars: Sequence[Jar], root: Path) -> None:
    ivy = sorted(spark_home().glob("jars/ivy-*.jar"))
    if not ivy:
        raise UserError(
            f"no ivy-*.jar in {spark_home()}/jars, so {jars[0].coordinates} cannot be fetched",
            do=f"put {jars[0].file_name} into {cache_directory()}",
        )
    module = root / "ivy.xml"
    module.write_text(_ivy_module(jars), encoding="utf-8")
    command = [java_command(), "-jar", str(ivy[-1]), "-warn", "-ivy", str(module)]
    settings = os.environ.get("LAYOUTCTL_IVY_SETTINGS") or spark_defaults().get(
        "spark.jars.ivySettings"
    )
    if settings:
        command += ["-settings", settings]
    pattern = f"{root}/out/[artifact]-[revision](-[classifier]).[ext]"
    command += ["-confs", "default", "-types", "jar", "-cache", f"{root}/cache"]
    command += ["-retrieve", pattern]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or any(not (root / "out" / j.file_name).is_file() for j in jars):
        lines = [ln.strip() for ln in (done.stdout + done.stderr).splitlines()]
        reasons = [ln for ln in lines if "WARN" in ln or "UNRESOLVED" in ln or "ERROR" in ln]
        raise UnavailableError(
            f"could not download {', '.join(jar.coordinates for jar in jars)}",
            details=tuple((reasons or lines)[-5:]),
            do="check the network, name your repository in LAYOUTCTL_IVY_SETTINGS (an "
            f"ivysettings.xml), or put the files into {cache_directory()}",
        )


def _ivy_module(jars: Sequence[Jar]) -> str:
    """Return an Ivy module that depends on exactly these artifacts, and not on their
    dependencies."""
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.organisation, jar.module, jar.revision), []).append(jar)
    dependencies = []
    for (organisation, module, revision), artifacts in modules.items():
        body = "".join(
            f'<artifact name={quoteattr(module)} type="jar" ext="jar"'
            + (f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else "")
            + "/>"
            for jar in artifacts
        )
        dependencies.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(module)} "
            f'rev={quoteattr(revision)} transitive="false" conf="default->*">{body}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="layoutctl" module="pins"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def java_command() -> str:
    """Return $JAVA_HOME/bin/java, else java on the PATH. Raises UserError if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise _java_error("found none: JAVA_HOME is not set and no java is on the PATH")
    return found


def check_java() -> None:
    """Raise UserError unless the JDK that Spark will use is new enough and complete."""
    place = "$JAVA_HOME" if os.environ.get("JAVA_HOME") else "the PATH"
    try:
        listed = subprocess.run(
            [java_command(), "--list-modules"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise _java_error(f"cannot run java of {place} ({error.strerror})") from error
    version = re.search(r"^java\.base@([0-9][^\s]*)", listed.stdout, re.MULTILINE)
    if listed.returncode != 0 or version is None:  # before Java 9 there were no modules
        raise _java_error(f"found {_old_version()} in {place}")
    if int(version.group(1).split(".")[0].split("-")[0].split("+")[0]) < MIN_JAVA:
        raise _java_error(f"found {version.group(1)} in {place}")
    if "jdk.incubator.vector@" not in listed.stdout:
        raise _java_error(f"found {version.group(1)} in {place}, which lacks the module")


def _old_version() -> str:
    shown = subprocess.run(
        [java_command(), "-version"], capture_output=True, text=True, check=False
    )
    match = re.search(r'version "([^"]+)"', shown.stderr)
    return match.group(1) if match else "an unknown version"


def _java_error(found: str) -> UserError:
    return UserError(
        f"apply needs a JDK {MIN_JAVA} or newer with jdk.incubator.vector; {found}",
        details=("observe and plan work without one.",),
        do="set JAVA_HOME",
    )


def main(arguments: Sequence[str]) -> int:
    """`python -m reconciler.spark.session.runtime DIRECTORY`: puts the image's jars there."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m reconciler.spark.session.runtime DIRECTORY\n")
        return EXIT_USER
    target = Path(arguments[0])
    try:
        for path in fetch(IMAGE_JARS):
            shutil.copy(path, target / path.name)
    except ReconcilerError as error:
        sys.stderr.write(error.render() + "\n")
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
