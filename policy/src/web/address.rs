//! Which addresses are public. One table for each family, each row with where it comes from.
//!
//! An address is public when no row covers it and, for IPv6, when it is global unicast (`2000::/3`):
//! the rest of that space is not assigned to anybody. An IPv4 address hidden in an IPv6 one is refused
//! whatever it is: a public one can be written plainly.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use protocol::refusal::{Code, Refusal};

/// The IANA registry of special-purpose IPv4 addresses.
const IANA_V4: &str = "IANA IPv4 special-purpose registry";
/// The IANA registry of special-purpose IPv6 addresses.
const IANA_V6: &str = "IANA IPv6 special-purpose registry";

/// A block of addresses that are not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first address.
    pub first: IpAddr,
    /// How many leading bits its addresses share.
    pub bits: u32,
    /// What it is for.
    pub name: &'static str,
    /// Who says so.
    pub source: &'static str,
}

const fn v4(a: u8, b: u8, c: u8, bits: u32, name: &'static str, source: &'static str) -> Range {
    Range { first: IpAddr::V4(Ipv4Addr::new(a, b, c, 0)), bits, name, source }
}

const fn v6(s: [u16; 8], bits: u32, name: &'static str, source: &'static str) -> Range {
    let first = Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
    Range { first: IpAddr::V6(first), bits, name, source }
}

/// IPv4 blocks that are not public.
pub const V4: &[Range] = &[
    v4(0, 0, 0, 8, "this network", IANA_V4),
    v4(10, 0, 0, 8, "private use", IANA_V4),
    v4(100, 64, 0, 10, "shared address space (carrier-grade NAT)", IANA_V4),
    v4(127, 0, 0, 8, "loopback", IANA_V4),
    v4(169, 254, 0, 16, "link-local", IANA_V4),
    v4(172, 16, 0, 12, "private use", IANA_V4),
    v4(192, 0, 0, 24, "IETF protocol assignments", IANA_V4),
    v4(192, 0, 2, 24, "documentation (TEST-NET-1)", IANA_V4),
    v4(192, 88, 99, 24, "6to4 relay anycast, deprecated", IANA_V4),
    v4(192, 168, 0, 16, "private use", IANA_V4),
    v4(198, 18, 0, 15, "benchmarking", IANA_V4),
    v4(198, 51, 100, 24, "documentation (TEST-NET-2)", IANA_V4),
    v4(203, 0, 113, 24, "documentation (TEST-NET-3)", IANA_V4),
    v4(224, 0, 0, 4, "multicast", "IANA IPv4 address space registry"),
    v4(240, 0, 0, 4, "reserved, and limited broadcast", IANA_V4),
];

/// IPv6 blocks that are not public, those that hide an IPv4 address first.
pub const V6: &[Range] = &[
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified", IANA_V6),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback", IANA_V6),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4-mapped", IANA_V6),
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "IPv4-translated (SIIT)", "RFC 2765"),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96, "IPv4-compatible, deprecated", "RFC 4291"),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "IPv4-IPv6 translation (NAT64)", IANA_V6),
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "IPv4-IPv6 translation, local use", IANA_V6),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "Teredo", IANA_V6),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4", IANA_V6),
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discard-only", IANA_V6),
    v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64, "dummy prefix", IANA_V6),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "IETF protocol assignments", IANA_V6),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation", IANA_V6),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation", IANA_V6),
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "segment routing SIDs", IANA_V6),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "unique-local", IANA_V6),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local", IANA_V6),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local, deprecated", "RFC 3879"),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast", "IANA IPv6 address space registry"),
];

/// What no row covers and is not global unicast either.
const UNASSIGNED: Range = v6([0; 8], 0, "not global unicast", "IANA IPv6 address space registry");
/// An interface identifier that hides an IPv4 address.
const ISATAP: Range = v6([0; 8], 0, "an ISATAP address, which hides an IPv4 address", "RFC 5214");

/// Whether an address is public.
///
/// # Errors
/// The block that says that it is not.
pub fn judge(ip: IpAddr) -> Result<(), Range> {
    let table = if ip.is_ipv4() { V4 } else { V6 };
    if let Some(range) = table.iter().find(|range| range.contains(ip)) {
        return Err(*range);
    }
    let IpAddr::V6(v6) = ip else { return Ok(()) };
    let segments = v6.segments();
    if segments[0] & 0xe000 != 0x2000 {
        return Err(UNASSIGNED);
    }
    // The universal/local and group bits may be either way.
    if segments[4] & 0xfcff == 0 && segments[5] == 0x5efe {
        return Err(ISATAP);
    }
    Ok(())
}

impl Range {
    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.first, ip) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => {
                (first.to_bits() ^ ip.to_bits()).leading_zeros() >= self.bits
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) => {
                (first.to_bits() ^ ip.to_bits()).leading_zeros() >= self.bits
            }
            _ => false,
        }
    }

    /// The refusal of a host that leads into it.
    pub fn refusal(&self, host: &str, ip: IpAddr) -> Refusal {
        let leads =
            if host == ip.to_string() { String::new() } else { format!(" leads to {ip}, which") };
        Refusal::new(
            Code::AddressRefused,
            format!("{host}{leads} is not public: {self}."),
            "Only public hosts are fetched from.",
        )
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits > 0 {
            write!(f, "{}/{} is ", self.first, self.bits)?;
        }
        write!(f, "{} ({})", self.name, self.source)
    }
}
