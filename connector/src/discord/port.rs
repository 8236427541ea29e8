//! What Sage asks of Discord. Each is one request; none retries by itself.

use tokio::time::Instant;

use crate::delivery::{Destination, Part, Sent};

/// The way to Discord.
pub trait Port: Clone + Send + Sync + 'static {
    /// Creates a message with the part's nonce (enforced), as a reply, with no allowed mentions. When it
    /// may be there already, `again` is until when its nonce is surely remembered, and an unknown
    /// message (10008) means that it had arrived and was deleted.
    fn send(
        &self,
        to: &Destination,
        part: &Part,
        again: Option<Instant>,
    ) -> impl Future<Output = Sent> + Send;

    /// Creates a message with a yes and a no button of these custom ids.
    fn ask(
        &self,
        to: &Destination,
        part: &Part,
        buttons: &[String; 2],
    ) -> impl Future<Output = Sent> + Send;

    /// Shows for ten seconds that somebody writes. Best effort.
    fn typing(&self, channel: &str) -> impl Future<Output = ()> + Send;

    /// Puts eyes on a message, once; what became of it changes nothing.
    fn eyes(&self, message: &Destination) -> impl Future<Output = Sent> + Send;

    /// A channel's parent, when it is a thread; `Err` when nobody can tell now.
    fn parent(&self, channel: &str) -> impl Future<Output = Result<Option<String>, ()>> + Send;
}
