//! A server on loopback that sends exactly the bytes that a test wrote, over TLS or plainly.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What to send, in order.
#[derive(Debug, Clone)]
pub enum Act {
    /// These bytes.
    Send(Vec<u8>),
    /// These bytes again and again, until the other end has enough.
    Endless(Vec<u8>),
    /// Nothing, until the other end goes away or the server is dropped.
    Hang,
}

/// A request's head, as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// All of it, up to the empty line.
    pub head: String,
    /// The name in the TLS greeting.
    pub sni: Option<String>,
}

impl Seen {
    /// The target of the request line.
    #[must_use]
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

type Script = dyn Fn(&Seen) -> Vec<Act> + Send + Sync;

/// The server; gone when dropped.
pub struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    gone: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it. With a configuration it speaks TLS.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls, script)
    }

    /// As [`Server::start`], at an address that is on the loopback interface.
    ///
    /// # Panics
    /// When it is taken.
    #[must_use]
    pub fn start_at(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("it is bound");
        let (seen, gone) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let script: Arc<Script> = Arc::new(script);
        let thread = {
            let (seen, gone) = (Arc::clone(&seen), Arc::clone(&gone));
            std::thread::spawn(move || accept(&listener, tls.as_ref(), &script, &seen, &gone))
        };
        Self { address, seen, gone, thread: Some(thread) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far.
    ///
    /// # Panics
    /// When a test panicked elsewhere.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(
    listener: &TcpListener,
    tls: Option<&Arc<ServerConfig>>,
    script: &Arc<Script>,
    seen: &Arc<Mutex<Vec<Seen>>>,
    gone: &Arc<AtomicBool>,
) {
    while let Ok((stream, _)) = listener.accept() {
        if gone.load(Ordering::Relaxed) {
            return;
        }
        let (tls, script) = (tls.cloned(), Arc::clone(script));
        let (seen, gone) = (Arc::clone(seen), Arc::clone(gone));
        // A client that goes away is what many tests are about.
        std::thread::spawn(move || {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
            let _ = match tls {
                None => serve(stream, |_| None, &*script, &seen, &gone),
                Some(config) => {
                    ServerConnection::new(config).map_err(io::Error::other).and_then(|tls| {
                        let sni = |stream: &StreamOwned<ServerConnection, TcpStream>| {
                            stream.conn.server_name().map(str::to_owned)
                        };
                        serve(StreamOwned::new(tls, stream), sni, &*script, &seen, &gone)
                    })
                }
            };
        });
    }
}

fn serve<S: Read + Write>(
    mut stream: S,
    sni: impl Fn(&S) -> Option<String>,
    script: &Script,
    seen: &Mutex<Vec<Seen>>,
    gone: &AtomicBool,
) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let request = Seen { head, sni: sni(&stream) };
    seen.lock().expect("no panic").push(request.clone());
    for act in script(&request) {
        match act {
            Act::Send(bytes) => stream.write_all(&bytes)?,
            Act::Endless(bytes) => {
                while !gone.load(Ordering::Relaxed) {
                    stream.write_all(&bytes)?;
                }
            }
            Act::Hang => {
                stream.flush()?;
                // Ends when the client does.
                let _ = stream.read(&mut byte);
            }
        }
    }
    stream.flush()
}

/// An answer with a length.
#[must_use]
pub fn answer(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<Act> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    vec![Act::Send([head.as_bytes(), body].concat())]
}

/// An answer of HTML.
#[must_use]
pub fn html(body: impl AsRef<[u8]>) -> Vec<Act> {
    answer(200, "Content-Type: text/html; charset=utf-8\r\n", body)
}

/// A redirect.
#[must_use]
pub fn redirect(location: &str) -> Vec<Act> {
    answer(302, &format!("Location: {location}\r\n"), "")
}
