//! TLS as a client: whom it trusts.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// The certificates to trust: those of a PEM file, or the system's. They are read now, before anything
/// is confined.
///
/// # Errors
/// What cannot be read, or that there is none.
pub(crate) fn authorities(ca_file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = match ca_file {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| format!("the caFile {} cannot be read: {error}", path.display()))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    match ca_file {
        _ if !found.is_empty() => Ok(found),
        Some(path) => Err(format!("the caFile {} holds no certificate", path.display())),
        None => {
            Err("this system has no CA certificates; install ca-certificates, or name a caFile"
                .to_owned())
        }
    }
}

/// A connector that trusts these certificates and no others.
///
/// # Errors
/// When TLS cannot be set up, or nothing of the file is a certificate.
pub(crate) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities(ca_file)?);
    if roots.is_empty() {
        let file = ca_file.map_or_else(|| "the system".to_owned(), |p| p.display().to_string());
        return Err(format!("the caFile {file} holds no certificate"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
