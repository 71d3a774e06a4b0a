"""Spark settings of a catalog document: what tunes is allowed, what reaches further is not."""

from __future__ import annotations

import pytest

from reconciler.api.spark_settings import refusal, refused_settings

ALLOWED = """
spark.sql.shuffle.partitions spark.sql.adaptive.enabled spark.sql.files.maxPartitionBytes
spark.sql.parquet.enableVectorizedReader spark.shuffle.compress spark.shuffle.io.maxRetries
spark.network.timeout spark.rpc.askTimeout spark.task.maxFailures spark.memory.fraction
spark.locality.wait spark.default.parallelism spark.executor.memoryOverhead
spark.executor.memoryOverheadFactor spark.executor.heartbeatInterval spark.io.compression.codec
spark.kubernetes.executor.limit.cores spark.kubernetes.executor.request.cores
spark.kubernetes.allocation.batch.size spark.kubernetes.node.selector.pool
spark.kubernetes.executor.annotation.example.com/team spark.kubernetes.report.interval
spark.hadoop.fs.s3a.connection.maximum spark.hadoop.fs.s3a.threads.max
spark.hadoop.parquet.block.size spark.cleaner.periodicGC.interval
"""
REFUSED = """
spark.jars spark.jars.packages spark.jars.ivySettings spark.files spark.archives
spark.submit.pyFiles spark.pyspark.python spark.plugins spark.extraListeners
spark.sql.extensions spark.sql.queryExecutionListeners
spark.sql.streaming.streamingQueryListeners spark.driver.extraJavaOptions
spark.executor.extraJavaOptions spark.executor.defaultJavaOptions spark.driver.extraClassPath
spark.executor.extraClassPath spark.executor.extraLibraryPath spark.executor.userClassPathFirst
spark.serializer spark.closure.serializer spark.kryo.registrator spark.kryo.classesToRegister
spark.shuffle.manager spark.shuffle.sort.io.plugin.class spark.metrics.conf
spark.metrics.conf.driver.sink.x.class spark.ui.filters spark.sql.catalog.other
spark.sql.catalog.warehouse.io-impl spark.sql.catalogImplementation spark.sql.hive.metastore.jars
spark.sql.sources.commitProtocolClass spark.sql.parquet.output.committer.class
spark.hadoop.fs.s3a.impl spark.hadoop.fs.AbstractFileSystem.x.impl
spark.hadoop.fs.s3a.aws.credentials.provider spark.hadoop.fs.s3a.access.key
spark.hadoop.fs.s3a.secret.key spark.hadoop.hadoop.security.credential.provider.path
spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net spark.hadoop.net.topology.script.class
spark.executorEnv.LD_PRELOAD spark.executorEnv.JAVA_TOOL_OPTIONS
spark.kubernetes.driverEnv.X spark.kubernetes.executor.secrets.name
spark.kubernetes.executor.secretKeyRef.X spark.kubernetes.executor.volumes.hostPath.x.mount.path
spark.kubernetes.authenticate.oauthToken spark.kubernetes.authenticate.driver.serviceAccountName
spark.kubernetes.namespace spark.kubernetes.container.image
spark.kubernetes.executor.container.image spark.kubernetes.executor.podTemplateFile
spark.kubernetes.executor.pod.featureSteps spark.kubernetes.driver.pod.name
spark.kubernetes.executor.label.layout.lakehouse.dev/layout spark.kubernetes.file.upload.path
spark.ssl.enabled spark.authenticate spark.authenticate.secret spark.kerberos.keytab
spark.redaction.regex spark.sql.redaction.options.regex spark.eventLog.enabled
spark.eventLog.dir spark.master spark.app.name spark.driver.host spark.driver.memory
spark.executor.memory spark.executor.cores spark.executor.instances spark.speculation
spark.dynamicAllocation.enabled spark.executor.resource.gpu.discoveryScript spark.local.dir
spark.sql.warehouse.dir spark.sql.session.timeZone spark.sql.unionOutputPartitioning
spark.connect.grpc.interceptor.classes spark.yarn.queue
"""


@pytest.mark.parametrize("name", ALLOWED.split())
def test_a_setting_that_tunes_is_allowed(name: str) -> None:
    assert refusal(name, "1") == ""


@pytest.mark.parametrize("name", REFUSED.split())
def test_a_setting_that_reaches_further_is_refused(name: str) -> None:
    assert refusal(name, "1")
    assert refusal(name.upper().replace("SPARK.", "spark.", 1), "1"), "case does not help"


@pytest.mark.parametrize("name", ["", "java.home", " spark.network.timeout", "spark.a b", "spark."])
def test_what_is_not_a_spark_setting_is_refused(name: str) -> None:
    assert refusal(name, "1")


def test_a_value_cannot_read_the_drivers_environment() -> None:
    name = "spark.kubernetes.executor.annotation.note"
    assert refusal(name, "${env:LAYOUT_RUN}")
    assert not refusal(name, "plain text")


def test_all_refused_settings_are_reported_with_a_reason() -> None:
    conf = {"spark.network.timeout": "1", "spark.plugins": "x", "spark.jars": "y"}
    assert list(refused_settings(conf)) == ["spark.jars", "spark.plugins"]
