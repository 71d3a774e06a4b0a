"""Every property by which pyiceberg 0.12 and Iceberg 1.12 load a class that a text names.

By the place in their code that loads it, so that a test can hold this list against the installed
pyiceberg and the pinned runtime jar. () for a place that loads only what its own code names.
"""

from __future__ import annotations

PYICEBERG: dict[tuple[str, str], tuple[str, ...]] = {
    ("catalog/__init__.py", "_import_catalog"): ("py-catalog-impl",),
    ("catalog/rest/auth.py", "create"): ("auth",),
    ("io/__init__.py", "_import_file_io"): ("py-io-impl",),
    ("io/pyarrow.py", "_import_retry_strategy"): ("s3.retry-strategy-impl",),
    ("table/locations.py", "_import_location_provider"): ("write.py-location-provider.impl",),
    ("transforms.py", "_try_import"): (),
}
"""By file and function."""

ICEBERG: dict[str, tuple[str, ...]] = {
    "CatalogUtil": (
        "catalog-impl",
        "type",
        "io-impl",
        "metrics-reporter-impl",
    ),
    "LocationProviders": ("write.location-provider.impl",),
    "RewriteTablePathUtil": (),
    "aliyun/AliyunClientFactories": ("client.factory-impl",),
    "aliyun/oss/OSSFileIO": (),
    "avro/AvroIO": (),
    "avro/GenericAvroReader$ResolvingReadBuilder": (),  # keys of encryption, by Iceberg's schemas
    "avro/InternalReaders$PlannedStructLikeReader": (),
    "avro/ValueReaders$IndexedRecordReader": (),
    "avro/ValueReaders$PlannedIndexedReader": (),
    "aws/AwsClientFactories": ("client.factory",),
    "aws/AwsClientProperties": ("client.credentials-provider",),
    "aws/AwsProperties": ("client.credentials-provider",),
    "aws/S3FileIOAwsClientFactories": ("s3.client-factory-impl",),
    "aws/s3/S3FileIO": (),
    "azure/AdlsTokenCredentialProviders": ("adls.token-credential-provider",),
    "azure/adlsv2/ADLSFileIO": (),
    "encryption/EncryptionUtil": ("encryption.kms-impl", "encryption.kms-type"),
    "gcp/GcpKeyManagementClient$ByteStringShim": (),
    "gcp/gcs/GCSFileIO": (),
    "io/ResolvingFileIO": (),
    "parquet/ParquetCodecFactory": (),
    "parquet/ParquetValueReaders$StructLikeReader": (),
    "puffin/PuffinCompressionCodec": (),
    "puffin/PuffinReader": (),
    "rest/HTTPClient": ("rest.client.tls.configurer-impl",),
    "rest/auth/AuthManagers": ("rest.auth.type", "rest.auth.sigv4.delegate-auth-type"),
    "snowflake/SnowflakeCatalog": (),
    "util/LockManagers": ("lock-impl",),
}
"""By class of the runtime jar, below org/apache/iceberg."""

HADOOP = (
    "fs.file.impl",
    "fs.s3a.aws.credentials.provider",
    "hadoop.security.group.mapping",
    "io.compression.codecs",
    "parquet.crypto.factory.class",
    "parquet.encryption.kms.client.class",
)
"""Of a table, since Iceberg's Parquet writer copies its properties into Hadoop's configuration."""

OTHER = ("s3.signer", "py-io-impl.extra", "adls.credential", "client.profile-name", "ssl")
"""Not class names, but not for a server to choose either."""

ALL = tuple(
    dict.fromkeys(
        name for group in (*PYICEBERG.values(), *ICEBERG.values(), HADOOP, OTHER) for name in group
    )
)
