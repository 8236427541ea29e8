//! What Sage asks of Discord. Each is one request; none retries by itself.

use crate::delivery::{Destination, Part, Sent};

/// The way to Discord.
pub trait Port: Clone + Send + Sync + 'static {
    /// Creates a message with the part's nonce (enforced), as a reply, with no allowed mentions. With
    /// `again`, an unknown message (10008) means that it had arrived and was deleted.
    fn send(&self, to: &Destination, part: &Part, again: bool)
    -> impl Future<Output = Sent> + Send;

    /// Creates a message with a yes and a no button of these custom ids.
    fn ask(
        &self,
        to: &Destination,
        part: &Part,
        buttons: &[String; 2],
    ) -> impl Future<Output = Sent> + Send;

    /// Shows for ten seconds that somebody writes. Best effort.
    fn typing(&self, channel: &str) -> impl Future<Output = ()> + Send;

    /// Puts eyes on a message. Best effort.
    fn eyes(&self, message: &Destination) -> impl Future<Output = ()> + Send;

    /// A channel's parent, when it is a thread; `Err` when nobody can tell now.
    fn parent(&self, channel: &str) -> impl Future<Output = Result<Option<String>, ()>> + Send;
}
