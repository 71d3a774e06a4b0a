"""Translates foreign exceptions of Spark, Iceberg and py4j once into errors for people."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Sequence
from typing import Any

from reconciler.engines.schedule.vanished import LEFT_ALONE, RESTORE
from reconciler.errors import (
    AccessDeniedError,
    InternalError,
    MemoryExhaustedError,
    ReconcilerError,
    TableDamagedError,
    TableNotFoundError,
    UnavailableError,
    UserError,
    first_line,
    unsupported_format,
)

ANSWER_SECONDS = 30.0
"""A JVM that does not answer within this time counts as ended: the outcome of its work is
unknown."""

CLEANABLE = "org.apache.iceberg.exceptions.CleanableFailure"
"""Iceberg's mark of an error after which it deletes what a commit wrote."""

_silent: list[Any] = []
"""Gateways that did not answer in time; they are not asked again, since a lease is held
meanwhile."""

_PATH = re.compile(r"(?:[a-z0-9]+:/|/)[^\s,;'\"]+")


def translate(error: BaseException, doing: str) -> ReconcilerError:
    try:
        ended, causes = lost(error), _causes(error)
    except Exception as later:  # the JVM may end before it has reported the error
        if not lost(later):
            raise
        ended, causes = True, []
    if ended:
        return UnavailableError(
            f"could not {doing}: the Spark process ended",
            details=("It ran out of memory or was killed. Nothing half-written is in the table.",),
            do="run the command again; give Spark more memory with LAYOUTCTL_DRIVER_MEMORY",
        )
    whole = _text(error, causes)
    for pattern, build in _TRANSLATIONS:
        if re.search(pattern, whole):
            return build(doing, whole)
    if not causes and not _foreign(error):
        raise error
    name, said = causes[-1] if causes else (type(error).__name__, str(error))
    first = first_line(said) if said else ""
    return InternalError(
        f"could not {doing}",
        said=(f"{name.rpartition('.')[2]}: {first}",),
        do="nothing of this step was committed; if it fails again, report it with the run's log",
    )


def is_unwritable(error: BaseException) -> bool:
    """Whether the storage is full or read-only: any further write fails too."""
    return bool(re.search(f"{_DISK_FULL}|{_NOT_WRITABLE}", _text(error, _causes(error))))


def is_missing_file(error: BaseException) -> bool:
    """True if a file was not found, and it is not that one may not open it."""
    said = text(error)
    return bool(re.search(_MISSING, said)) and not re.search(_NOT_WRITABLE, said)


def is_missing_table(error: BaseException) -> bool:
    """Whether the catalog has no table of that name."""
    return "NoSuchTableException" in text(error)


def is_taken_name(error: BaseException) -> bool:
    """Whether the catalog has a table of the name already."""
    return "AlreadyExistsException" in text(error)


def text(error: BaseException) -> str:
    """What the error and its causes say, with the names of their classes."""
    return _text(error, _causes(error))


def _text(error: BaseException, causes: Sequence[tuple[str, str]]) -> str:
    return " | ".join(f"{name}: {said}" for name, said in causes) or str(error)


def _missing_file(doing: str, text: str) -> ReconcilerError:
    paths = [path for path in _PATH.findall(text) if path.endswith(_FILE_ENDINGS)]
    what = f"could not {doing}: a file that the table refers to is missing"
    return TableDamagedError(
        f"{what}: {paths[0]}" if paths else what,
        said=() if paths else (_tail(text),),
        details=(LEFT_ALONE,),
        do=RESTORE,
    )


def _newer_format(doing: str, text: str) -> ReconcilerError:
    found = re.search(_NEWER_FORMAT, text)
    return unsupported_format(f"could not {doing}: the table", found[1] if found else "unknown")


def _disk_full(doing: str, text: str) -> ReconcilerError:
    return UnavailableError(
        f"could not {doing}: no space left on the device",
        details=("Sorting needs room for spills in the temporary directory, and for the output.",),
        do="free space, or point TMPDIR and spark.local.dir to a larger disk, then run the command "
        "again",
    )


def _not_writable(doing: str, text: str) -> ReconcilerError:
    return AccessDeniedError(
        f"could not {doing}: the storage does not allow it",
        said=(_tail(text),),
        do="check that the place named above is writable and not full, then run the command again",
    )


def _out_of_memory(doing: str, text: str) -> ReconcilerError:
    return MemoryExhaustedError(
        f"could not {doing}: Spark ran out of memory",
        do="give it more with LAYOUTCTL_DRIVER_MEMORY (for example 8g) and run the command again",
    )


def _executors_lost(doing: str, text: str) -> ReconcilerError:
    return UnavailableError(
        f"could not {doing}: Spark lost its executors",
        said=(_tail(text),),
        do="see why they ended (evicted, preempted, killed), then run it again",
    )


def _python_incomplete(doing: str, text: str) -> ReconcilerError:
    found = re.search(_PYTHON_INCOMPLETE, text)
    lacks = f"has no module {found[1]}" if found and found[1] else "is of another version"
    return UserError(
        f"could not {doing}: the Python that verifies what was written {lacks}",
        details=("Executors run it, or the driver for small work.", LEFT_ALONE),
        do="use the project's job image; elsewhere install table-layout-reconciler[spark] in the "
        "Python of the driver and of the executors, and name the latter in PYSPARK_PYTHON",
    )


def _python_ended(doing: str, text: str) -> ReconcilerError:
    return MemoryExhaustedError(
        f"could not {doing}: a Python process that verifies what was written ended by itself",
        details=("Most likely its executor's pod has too little memory beside the heap.",),
        do="raise spark.executor.memoryOverhead in the catalog's sparkConf, or set fewer cores "
        "for each executor",
    )


def _denied(doing: str, text: str) -> ReconcilerError:
    return AccessDeniedError(
        f"could not {doing}: the catalog, the storage or the cluster refused the credentials",
        said=(_tail(text),),
        do="check the credentials and rights that the detail above names",
    )


def _no_credentials(doing: str, text: str) -> ReconcilerError:
    return AccessDeniedError(
        f"could not {doing}: there are no credentials for the storage",
        said=(_tail(text),),
        do="set s3.access-key-id and s3.secret-access-key of the catalog, or the credentials of "
        "the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE)",
    )


def _wrong_region(doing: str, text: str) -> ReconcilerError:
    return UserError(
        f"could not {doing}: the region of the storage is missing or wrong",
        said=(_tail(text),),
        do="set s3.region of the catalog, or AWS_REGION, to the region of the bucket",
    )


def _class_missing(doing: str, text: str) -> ReconcilerError:
    return UserError(
        f"could not {doing}: a class is missing from Spark's class path",
        said=(_tail(text),),
        do="use a Spark, or a job image, that has the jars of this catalog and its storage",
    )


def _tail(text: str) -> str:
    """Return the first line of the innermost cause, without text hidden behind a line break.

    It goes to `ReconcilerError.said`: an engine may name values of rows in it."""
    return first_line(text.rpartition(" | ")[2])


def _no_table(doing: str, text: str) -> ReconcilerError:
    return TableNotFoundError(
        f"could not {doing}: the table does not exist", do="layoutctl catalogs"
    )


def _catalog_down(doing: str, text: str) -> ReconcilerError:
    return UnavailableError(
        f"could not {doing}: the catalog or storage did not answer",
        said=(_tail(text),),
        do="check that it is reachable, then run the command again",
    )


def _corrupt(doing: str, text: str) -> ReconcilerError:
    return TableDamagedError(
        f"could not {doing}: a file of the table cannot be read",
        said=(_tail(text),),
        details=(LEFT_ALONE,),
        do=RESTORE,
    )


def _bad_codec(doing: str, text: str) -> ReconcilerError:
    return UserError(
        f"could not {doing}: its property write.parquet.compression-codec cannot be used",
        said=(_tail(text),),
        details=(LEFT_ALONE,),
        do="correct the property: zstd, gzip, snappy, lz4 or uncompressed",
    )


_FILE_ENDINGS = (".parquet", ".puffin", ".avro", ".orc", ".metadata.json", ".metadata.json.gz")
_MISSING = (
    r"FileNotFoundException|FAILED_READ_FILE\.FILE_NOT_EXIST|NoSuchFileException|NoSuchKeyException"
    r"|exceptions\.NotFoundException|\[Errno 2\] No such file or directory"
)
_NEWER_FORMAT = r"(?:Cannot read unsupported version|[Uu]nsupported format version:?) v?(\d+)"
_DISK_FULL = r"No space left on device|Disk quota exceeded"
# Java's FileNotFoundException is also raised for a file that may not be opened.
_NOT_WRITABLE = r"Read-only file system|Permission denied|Mkdirs failed to create"
_PYTHON_INCOMPLETE = (
    r"No module named '((?:reconciler|duckdb|pyroaring|numpy|pyarrow|pyiceberg)[.\w]*)'"
    r"|PYTHON_VERSION_MISMATCH"
)
# What ended an executor's pod says more than its exit code, which is 137 for an eviction too.
_NODE_ENDED = r"(?s)\A(?!.*OOMKilled).*The API gave the following brief reason: (?!N/A)\w"
_TRANSLATIONS = (
    (_PYTHON_INCOMPLETE, _python_incomplete),
    (r"Python worker exited unexpectedly", _python_ended),
    (_DISK_FULL, _disk_full),
    (_NOT_WRITABLE, _not_writable),
    (_NODE_ENDED, _executors_lost),
    # 137: killed by the kernel; 52: Spark's own exit of an executor without memory left.
    (r"malloc of size \d+ failed|realloc of size \d+ failed|"
     r"OutOfMemoryError|Java heap space|GC overhead limit|OOMKilled|possible container OOM"
     r"|exit(?:ed with)? (?:code|status):? ?(?:137|52)\b|Container killed|exceeding memory limits",
     _out_of_memory),
    (r"ExecutorLostFailure|executor \S+ exited|Executor heartbeat timed out|Slave lost"
     r"|Worker lost|Max number of executor failures", _executors_lost),
    (r"Unable to load region|AuthorizationHeaderMalformed|authorization header is malformed"
     r"|Service: S3, Status Code: (?:301|400)\b", _wrong_region),
    (r"Unable to load credentials", _no_credentials),
    (r"NotAuthorized|Forbidden|AccessDenied|Access Denied|AccessControlException|InvalidAccessKey"
     r"|SignatureDoesNotMatch|Status Code: 40[13]\b|ExpiredToken", _denied),
    (r"ClassNotFoundException|NoClassDefFoundError|Cannot find constructor", _class_missing),
    (_NEWER_FORMAT, _newer_format),
    (_MISSING, _missing_file),
    (r"NoSuchTableException|TABLE_OR_VIEW_NOT_FOUND", _no_table),
    (r"ChecksumException|is not a Parquet file|ParquetDecodingException|Failed to fetch file"
     r"|Invalid Avro|Not an Avro|Not a data file|InvalidAvroMagic|AvroRuntimeException"
     r"|can not read class|did not reach the end of stream|footer is too large"
     r"|EOFException: (?:Reached the end of stream|Cannot seek after EOF)"
     # Parquet's own Thrift: a metastore that is away speaks of the same classes elsewhere.
     r"|corrupted file: the footer|parquet\.\S*thrift\.\S*T(?:Protocol|Transport)Exception"
     r"|Data corruption detected|FAILED_TO_UNCOMPRESS|DataFormatException"
     r"|ZipException: (?:invalid|incorrect|unknown compression)|gzip stream CRC", _corrupt),
    (r"Unsupported compression codec", _bad_codec),
    (r"SQLiteException|UncheckedSQLException|SQLTransientException|ConnectException"
     r"|UnknownHostException|SocketTimeout|ServiceFailure|ServiceUnavailable|RESTException",
     _catalog_down),
)  # fmt: skip


def _foreign(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("py4j", "pyspark")


def lost_machine(text: str) -> bool:
    """Whether Spark's reason of a failed task is that its executor was lost, and not for memory."""
    found = next((build for pattern, build in _TRANSLATIONS if re.search(pattern, text)), None)
    return found is _executors_lost


def lost(error: BaseException) -> bool:
    """Whether the connection to the JVM broke: the outcome of its work is unknown."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    if isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)):
        return True
    # A connection that is reset while py4j waits for the answer looks like a failed call, or a
    # missing class, but without anything from Java.
    return type(error) is Py4JError and not _jvm_answers()


def _jvm_answers() -> bool:
    """Whether the JVM answers, asked in a thread: a JVM that only collects garbage accepts the
    request."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None or any(gateway is other for other in _silent):
        return False
    answered = threading.Event()
    asking = threading.Thread(target=_ask, args=(gateway, answered), daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    if asking.is_alive():
        _silent.append(gateway)
    return answered.is_set()


def _ask(gateway: Any, answered: threading.Event) -> None:
    with contextlib.suppress(Exception):  # any error means that there was no answer
        gateway.jvm.java.lang.System.nanoTime()
        answered.set()


def java_exception(error: BaseException) -> Any | None:
    """Return the Throwable behind a Python exception, None for one of Python's own."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def message(error: BaseException) -> str:
    """The error's first line, of Java's exception where it is one: never a stack."""
    thrown = java_exception(error)
    said = str(thrown.getMessage() or "") if thrown is not None else str(error)
    return first_line(said) or type(error).__name__


def error_class(error: BaseException) -> str:
    """Return the name of the class of the error: Java's where it is one, without its text."""
    thrown = java_exception(error)
    name = type(error).__name__ if thrown is None else str(thrown.getClass().getName())
    return name.rpartition(".")[2]


def _causes(error: BaseException) -> list[tuple[str, str]]:
    """Return class name and message of the Java exception and its causes, outermost first."""
    found: list[tuple[str, str]] = []
    current = java_exception(error)
    while current is not None and len(found) < 12:
        found.append((current.getClass().getName(), str(current.getMessage() or "")))
        current = current.getCause()
    return found
