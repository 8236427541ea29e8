//! A certificate authority of our own, and server certificates that are good or bad in one way each.

use std::sync::Arc;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority that signs server certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What is wrong with a server certificate, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// Nothing: it is for `localhost` and the loopback addresses, and valid.
    Good,
    /// It has long expired.
    Expired,
    /// It is for another host.
    OtherHost,
}

impl Authority {
    /// A new authority, with a key that nobody else has.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Its certificate, as a client is told to trust it.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// What a server needs to present a certificate of this authority.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn serve(&self, leaf: Leaf) -> Result<Arc<ServerConfig>> {
        let names: &[&str] = match leaf {
            Leaf::Good | Leaf::Expired => &["localhost", "127.0.0.1", "127.0.0.2"],
            Leaf::OtherHost => &["git.example.invalid"],
        };
        self.present(names, leaf == Leaf::Expired)
    }

    /// What a server needs to present a good certificate for these names.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn serve_names(&self, names: &[&str]) -> Result<Arc<ServerConfig>> {
        self.present(names, false)
    }

    fn present(&self, names: &[&str], expired: bool) -> Result<Arc<ServerConfig>> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "Test server");
        if expired {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        Ok(Arc::new(config))
    }
}
