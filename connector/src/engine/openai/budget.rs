//! How much of a conversation a model is given.
//!
//! Tokens are estimated, since every model counts its own way: one for every three bytes of UTF-8, and
//! eight for each message and call. English has about four bytes a token and JSON about three, so the
//! estimate errs on the high side; the endpoint's own count is in the turn's record.
//!
//! What does not fit is made shorter from the old end, in this order, until it fits:
//!
//! 1. old turns lose their calls and results, and keep what was asked and answered;
//! 2. old turns are left out, and a [`Message::Gap`] says so;
//! 3. the last turns go the same way, only when they cannot all be there;
//! 4. results of the turn under way lose their text, oldest first.
//!
//! A call and its result go together or stay together. Steps 1 and 2 go on to three quarters of the
//! budget, so that they are not needed again at once.

use super::memory::Message;

/// The turns that are kept as they were, the one under way included.
const LAST_TURNS: usize = 4;

/// What stands in the place of a result that was left out.
const LEFT_OUT: &str =
    r#"{"leftOut":"This result was left out for want of room. Call again if you need it."}"#;

/// Tokens in so many bytes.
pub(super) fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(3)
}

/// Tokens in a message.
fn cost(message: &Message) -> usize {
    8 + match message {
        Message::Gap {} => 0,
        Message::User { text } => tokens(text.len()),
        Message::Tool { id, text } => tokens(id.len() + text.len()),
        Message::Assistant { text, calls } => {
            let call = |call: &super::memory::StoredCall| {
                8 + tokens(call.id.len() + call.name.len() + call.arguments.len())
            };
            tokens(text.len()) + calls.iter().map(call).sum::<usize>()
        }
    }
}

/// Tokens in all of them.
pub(super) fn total(messages: &[Message]) -> usize {
    messages.iter().map(cost).sum()
}

/// The conversation, made to fit; `None` when even the turn under way does not.
pub(super) fn fit(messages: &[Message], budget: usize) -> Option<Vec<Message>> {
    if total(messages) <= budget {
        return Some(messages.to_vec());
    }
    let mut shape = Shape::of(messages);
    let room = budget / 4 * 3;
    let old = shape.turns.len().saturating_sub(LAST_TURNS);
    shape.shorten(old, room);
    shape.leave_out(LAST_TURNS, room);
    let earlier = shape.turns.len().saturating_sub(1);
    shape.shorten(earlier, budget);
    shape.leave_out(1, budget);
    shape.cut_results(budget);
    (shape.total() <= budget).then(|| shape.into_messages())
}

/// A conversation, turn by turn.
struct Shape {
    gap: bool,
    turns: Vec<Vec<Message>>,
}

impl Shape {
    fn of(messages: &[Message]) -> Self {
        let mut shape = Self { gap: false, turns: Vec::new() };
        for message in messages {
            match (message, shape.turns.last_mut()) {
                (Message::Gap {}, _) => shape.gap = true,
                (Message::User { .. }, _) | (_, None) => shape.turns.push(vec![message.clone()]),
                (_, Some(turn)) => turn.push(message.clone()),
            }
        }
        shape
    }

    fn total(&self) -> usize {
        let gap = if self.gap { cost(&Message::Gap {}) } else { 0 };
        gap + self.turns.iter().map(|turn| total(turn)).sum::<usize>()
    }

    fn into_messages(self) -> Vec<Message> {
        let gap = self.gap.then_some(Message::Gap {});
        gap.into_iter().chain(self.turns.into_iter().flatten()).collect()
    }

    /// Takes calls and results out of the first turns, until it fits.
    fn shorten(&mut self, first: usize, room: usize) {
        for at in 0..first {
            if self.total() <= room {
                return;
            }
            self.turns[at].retain(|message| match message {
                Message::User { .. } => true,
                Message::Assistant { calls, .. } => calls.is_empty(),
                Message::Tool { .. } | Message::Gap {} => false,
            });
        }
    }

    /// Leaves out whole turns from the old end, until it fits or only so many are there.
    fn leave_out(&mut self, keep: usize, room: usize) {
        let mut out = 0;
        let mut left = self.total();
        while left > room && self.turns.len() - out > keep {
            left -= total(&self.turns[out]);
            out += 1;
        }
        self.turns.drain(..out);
        self.gap |= out > 0;
    }

    /// Takes the text out of results of the turn under way, oldest first, until it fits.
    fn cut_results(&mut self, budget: usize) {
        let mut left = self.total();
        for message in self.turns.last_mut().into_iter().flatten() {
            if left <= budget {
                return;
            }
            let before = cost(message);
            if let Message::Tool { text, .. } = message
                && text.len() > LEFT_OUT.len()
            {
                LEFT_OUT.clone_into(text);
            }
            left = left - before + cost(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::{LAST_TURNS, LEFT_OUT, fit, total};
    use crate::engine::openai::memory::{Message, StoredCall, is_whole};

    fn turn(name: &str, bytes: usize) -> Vec<Message> {
        let call = StoredCall {
            id: name.to_owned(),
            name: "read_file".to_owned(),
            arguments: "{}".to_owned(),
        };
        vec![
            Message::User { text: format!("ask {name}") },
            Message::Assistant { text: String::new(), calls: vec![call] },
            Message::Tool { id: name.to_owned(), text: "x".repeat(bytes) },
            Message::Assistant { text: format!("answer {name}"), calls: Vec::new() },
        ]
    }

    fn turns(count: usize, bytes: usize) -> Vec<Message> {
        (0..count).flat_map(|n| turn(&n.to_string(), bytes)).collect()
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        let messages = turns(5, 300);
        assert_eq!(fit(&messages, total(&messages)).as_ref(), Some(&messages));
        assert_ne!(fit(&messages, total(&messages) - 1), Some(messages));
    }

    #[test]
    fn old_turns_lose_their_results_before_any_is_left_out() {
        let messages = turns(12, 3000);
        let fitted = fit(&messages, 8000).expect("it fits");
        assert_eq!(fitted[0], messages[0]);
        assert_eq!(fitted[1], messages[3], "the answer follows the question");
        assert!(fitted.ends_with(&messages[messages.len() - 4 * LAST_TURNS..]));
        assert!(!fitted.contains(&Message::Gap {}));
    }

    #[test]
    fn the_last_turns_are_kept_whole_and_older_ones_are_left_out() {
        let messages = turns(400, 3000);
        let fitted = fit(&messages, 6500).expect("it fits");
        assert_eq!(fitted[0], Message::Gap {});
        assert!(fitted.ends_with(&messages[messages.len() - 4 * LAST_TURNS..]));
        assert!(total(&fitted) <= 6500);
        let again = [fitted.clone(), turn("new", 3000)].concat();
        let again = fit(&again, 6500).expect("it fits");
        assert_eq!(again.iter().filter(|message| **message == Message::Gap {}).count(), 1);
    }

    #[test]
    fn the_turn_under_way_loses_its_oldest_results_and_never_its_question() {
        let mut messages = turns(3, 300);
        messages.push(Message::User { text: "go".to_owned() });
        for n in 0..6 {
            messages.extend(turn(&format!("now{n}"), 3000).drain(1..3));
        }
        let fitted = fit(&messages, 4000).expect("it fits");
        assert!(fitted.contains(&Message::User { text: "go".to_owned() }));
        let cut =
            fitted.iter().filter(|m| matches!(m, Message::Tool { text, .. } if text == LEFT_OUT));
        assert!(cut.count() >= 2);
        assert!(is_whole(&fitted));
        let Some(Message::Tool { text, .. }) = fitted.last() else { panic!("{fitted:?}") };
        assert_eq!(text.len(), 3000, "the newest result is the last to go");
    }

    #[test]
    fn a_question_that_does_not_fit_is_not_cut() {
        let messages = [Message::User { text: "x".repeat(3000) }];
        assert_eq!(fit(&messages, 500), None);
    }

    proptest! {
        #[test]
        fn what_is_made_to_fit_fits_is_whole_and_ends_as_it_did(
            sizes in proptest::collection::vec(0..4000usize, 1..40), budget in 2000..20_000usize,
        ) {
            let messages: Vec<Message> = sizes
                .iter()
                .enumerate()
                .flat_map(|(n, bytes)| turn(&n.to_string(), *bytes))
                .collect();
            let fitted = fit(&messages, budget).expect("one turn without results always does");
            prop_assert!(total(&fitted) <= budget);
            prop_assert!(is_whole(&fitted));
            prop_assert_eq!(fitted.last(), messages.last());
            let user = |m: &&Message| matches!(m, Message::User { .. });
            prop_assert_eq!(fitted.iter().rfind(user), messages.iter().rfind(user));
        }
    }
}
