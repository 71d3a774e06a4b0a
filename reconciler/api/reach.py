"""Which network addresses and which places the operator may reach on behalf of a document.

Whoever may write an IcebergCatalog in one namespace names hosts that the operator then talks to.
The operator's own machine, its link and the cloud's metadata services are not theirs to name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16",  # AWS, Azure, Google Cloud, OpenStack, Oracle
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google Cloud
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure's platform
        "192.0.0.192/32",  # Oracle Cloud, first generation
    )
)
_EMBEDDING = tuple(
    (ipaddress.ip_network(text), shift)
    for text, shift in (("64:ff9b::/96", 0), ("64:ff9b:1::/48", 0), ("2002::/16", 80), ("::/96", 0))
)
"""IPv6 networks whose addresses carry an IPv4 address, and how many bits stand after it."""


@dataclass(frozen=True, slots=True)
class Reach:
    """allowed: networks that may be reached although they are refused by default. local_files:
    whether files and databases of this machine may be named."""

    allowed: tuple[Network, ...] = ()
    local_files: bool = False

    def refusal(self, address: str) -> str:
        """Why a numeric address may not be connected to, "" if it may."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return "it is not a numeric address"
        forms = _forms(found)
        if any(form in network for form in forms for network in self.allowed):
            return ""
        return next((why for form in forms if (why := _why(form))), "")


STRICT = Reach()


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Raises ValueError for what is neither an address nor a network."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def _forms(address: Address) -> tuple[Address, ...]:
    """The address and the IPv4 address that it carries, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    carried: list[Address] = [address]
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped, address)
    for network, shift in _EMBEDDING:
        if address in network and int(address) > 1:
            carried.append(ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF))
    return tuple(carried)


def _why(address: Address) -> str:
    if any(address in network for network in METADATA):
        return "it is a link-local or metadata address"
    kinds = {
        "a loopback address": address.is_loopback,
        "a link-local address": address.is_link_local,
        "a multicast address": address.is_multicast,
        "an unspecified address": address.is_unspecified
        or (address.version == 4 and int(address) >> 24 == 0),
        "a reserved address": address.is_reserved and address.version == 4,
    }
    kind = next((name for name, is_kind in kinds.items() if is_kind), "")
    return f"it is {kind}" if kind else ""
