"""Certificates and keys of a test cluster: one authority, the two servers, service-account keys."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_AUTHORITY = "test-cluster-ca"
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES = ("127.0.0.1", "10.96.0.1")
_VALID = datetime.timedelta(days=30)


def write(directory: Path) -> None:
    """ca.crt, apiserver.{crt,key}, kubelet.{crt,key} and sa.{pub,key} below `directory`."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _builder(_AUTHORITY, authority_key, authority_key, signs=True)
    _write_certificate(directory / "ca.crt", authority.sign(authority_key, hashes.SHA256()))
    for server in ("apiserver", "kubelet"):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _builder(server, key, authority_key, signs=False).add_extension(
            x509.SubjectAlternativeName(
                [
                    *map(x509.DNSName, _NAMES),
                    *(x509.IPAddress(ipaddress.ip_address(text)) for text in _ADDRESSES),
                ]
            ),
            critical=False,
        )
        _write_certificate(
            directory / f"{server}.crt", certificate.sign(authority_key, hashes.SHA256())
        )
        _write_key(directory / f"{server}.key", key)
    accounts = rsa.generate_private_key(65537, 2048)
    _write_key(directory / "sa.key", accounts)
    (directory / "sa.pub").write_bytes(
        accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _builder(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    *,
    signs: bool,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_distinguished(name))
        .issuer_name(_distinguished(_AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
        .add_extension(_usage(signs), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False
        )
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _distinguished(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
