//! A sign of life for a person who waits: on a terminal alone, and after half a second alone.

use std::io::{IsTerminal, Write};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(100);
const SIGNS: [&str; 4] = ["|", "/", "-", "\\"];

/// Waits for something, and shows that it waits.
pub(crate) async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    let mut err = std::io::stderr();
    if !err.is_terminal() {
        return work.await;
    }
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    let mut turns = SIGNS.iter().cycle();
    loop {
        let _ = write!(err, "\r{} {what}", turns.next().unwrap_or(&"|"));
        let _ = err.flush();
        if let Ok(done) = tokio::time::timeout(STEP, &mut work).await {
            let _ = write!(err, "\r\u{1b}[K");
            let _ = err.flush();
            return done;
        }
    }
}
