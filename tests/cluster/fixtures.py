"""Fixtures of the test cluster and the S3 server, for every suite.

The first time, building their programs takes minutes: that begins after collection, the tests that
need none of them run meanwhile, and the others wait for it before their own time starts. Without
Go the tests are skipped, and in CI they fail; either way the run says what is missing.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.cluster import binaries

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster
    from tests.s3_store import S3Store

MODULES = {"kube": "cluster", "helm": "helm", "versitygw": "s3_store"}
"""Module of programs -> the fixture that runs them."""

_builds: dict[str, Future[Path]] = {}
_on_cluster: set[str] = set()
"""Ids of the chosen tests on the cluster that have not ended."""
_clusters: list[Cluster] = []
_numbers = itertools.count(1)


class Kubectl(Protocol):
    """kubectl in the test's namespace; raises KubectlError with what it said."""

    def __call__(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a program that is built come after the others, each in their own order."""
    items.sort(key=lambda item: bool(modules(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begins to build what the chosen tests need."""
    _on_cluster.update(item.nodeid for item in session.items if _is_on_cluster(item))
    asked = {module for item in session.items for module in modules(item)}
    needed = [module for module in MODULES if module in asked]
    if not needed or session.config.option.collectonly:
        return
    _builds.update({module: Future() for module in needed})
    threading.Thread(target=_build, args=(needed,), name="go build").start()


def _build(needed: list[str]) -> None:
    try:
        for module, directory in binaries.each(needed):
            _builds[module].set_result(directory)
    except Exception as error:
        for build in _builds.values():
            if not build.done():
                build.set_exception(error)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Waits for the programs before the clock of the test starts."""
    needed = modules(item)
    for module in needed:
        if not _builds[module].done():
            _say(item.config, f"waiting for Go to build {module} (minutes, once) ...")
        wait([_builds[module]])
    result = yield
    if _is_on_cluster(item):
        _on_cluster.discard(item.nodeid)
        if not _on_cluster:  # it takes 3 % of a core while nobody asks it anything
            for cluster in _clusters:
                cluster.stop()
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for text in sorted({text for module in _builds if (text := _obstacle(module))}):
        terminalreporter.write_line(f"some tests did not run: {text}", yellow=True)


def _is_on_cluster(item: pytest.Item) -> bool:
    return "cluster" in getattr(item, "fixturenames", ())


def modules(item: pytest.Item) -> list[str]:
    """Names of the modules whose programs the test needs."""
    asked = getattr(item, "fixturenames", ())
    return [module for module, fixture in MODULES.items() if fixture in asked]


def is_waiting(item: pytest.Item) -> bool:
    """Whether a program that the test needs is still being built."""
    return not all(_builds[module].done() for module in modules(item))


def _obstacle(module: str) -> str:
    """Why the programs of a module are not there; "" if they are, or are still being built."""
    build = _builds[module]
    error = build.exception() if build.done() else None
    return str(error) if isinstance(error, binaries.CannotBuild) else ""


def _say(config: pytest.Config, text: str) -> None:
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(text)


def _programs(module: str) -> Path:
    text = _obstacle(module)
    if text and os.environ.get("CI", "").lower() == "true":
        pytest.fail(text, pytrace=False)
    if text:
        pytest.skip(text)
    return _builds[module].result()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The control plane, started for the first test that asks, shared by all, and stopped after
    the last."""
    from tests.cluster.cluster import Cluster

    programs = _programs("kube")
    with Cluster(tmp_path_factory.mktemp("cluster"), programs) as running:
        _clusters.append(running)
        yield running


@pytest.fixture(scope="session")
def s3_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """An S3 server with the bucket "lake", shared by all: use a table or prefix of your own."""
    from tests.s3_store import S3Store

    store = S3Store(_programs("versitygw") / "versitygw", tmp_path_factory.mktemp("s3"))
    yield store
    store.stop()


@pytest.fixture(scope="session")
def kubelet(cluster: Cluster) -> Cluster:
    """The cluster with its node: pods run. Images: sh, python (their command, then the args)."""
    cluster.set_image("sh", ["sh", "-c"])
    cluster.set_image("python", [sys.executable, "-c"])
    cluster.start_kubelet()
    return cluster


@pytest.fixture(scope="session")
def spark_image(kubelet: Cluster) -> str:
    """Name of an image that is to the test kubelet what Spark's own is to a real one."""
    from tests.cluster import spark_image as image

    kubelet.set_image(image.NAME, image.ENTRYPOINT, image.environment())
    return image.NAME


@pytest.fixture(scope="session")
def helm(cluster: Cluster) -> Path:
    """The helm client; run it with `Cluster.environment`."""
    return _programs("helm") / "helm"


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace, named after the test; its deletion is not waited for."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = f"{slug}-{next(_numbers)}"
    cluster.create_namespace(name)
    yield name
    cluster.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Kubectl:
    """kubectl in the test's namespace: `kubectl("get", "pods")`."""

    def run(*arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        return cluster.kubectl("-n", namespace, *arguments, stdin=stdin, kubeconfig=kubeconfig)

    return run


def eventually(check: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true answer of `check`; its last AssertionError, or a timeout, otherwise."""
    started = time.monotonic()
    deadline = started + seconds
    while True:
        try:
            answer = check()
            if answer:
                return answer
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {check}")
        time.sleep(pause_after(time.monotonic() - started))


def pause_after(waited: float) -> float:
    """Seconds to rest before asking again. A check often starts kubectl, which takes a tenth of a
    CPU second, so that what takes long is asked for less often."""
    return 0.2 + min(0.6, waited / 10)
