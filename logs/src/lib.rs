//! Logs of both programs: lines on standard error. Where that is systemd's journal, each begins with its
//! priority, and the time is left to the journal.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Begins to log what the environment's `variable` says, or `default`.
///
/// # Panics
/// When called twice in a process.
pub fn begin(variable: &str, default: &str) {
    let filter = EnvFilter::try_from_env(variable).unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if goes_to_journal() {
        let bare = tracing_subscriber::fmt::format().without_time().with_ansi(false);
        logs.with_ansi(false).event_format(Ranked(bare)).init();
    } else {
        logs.init();
    }
}

/// Whether standard error is the stream that the manager named (`systemd.exec(5)`).
fn goes_to_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let stat = rustix::fs::fstat(io::stderr().as_fd());
    stat.is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// With the priority that `sd-daemon(3)` reads.
struct Ranked<T>(Format<tracing_subscriber::fmt::format::Full, T>);

impl<S, N, T> FormatEvent<S, N> for Ranked<T>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    T: tracing_subscriber::fmt::time::FormatTime,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
