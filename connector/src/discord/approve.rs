//! A plan's yes and no buttons.
//!
//! What must stay true: only the person the turn acts for decides, once; silence is a no; a press on
//! a question that is not open, after a restart or its end, is told so and changes nothing. A press is
//! judged without waiting, so that it is acknowledged within Discord's three seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// The questions that are open.
#[derive(Debug)]
pub struct Approvals {
    open: Mutex<HashMap<String, Open>>,
    timeout: Duration,
}

#[derive(Debug)]
struct Open {
    author: String,
    answer: oneshot::Sender<bool>,
}

/// What a press is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressed {
    /// The question is answered: yes, or no.
    Decided(bool),
    /// Somebody else's question; only they are told, in a message nobody else sees.
    NotYours,
    /// The question is not open any more, and nothing came of it.
    Void,
    /// None of our buttons.
    Foreign,
}

/// A question that waits. Closed when dropped.
#[derive(Debug)]
pub struct Question {
    /// The custom ids of yes and no.
    pub buttons: [String; 2],
    key: String,
    approvals: Arc<Approvals>,
    answer: oneshot::Receiver<bool>,
}

impl Approvals {
    /// None is open.
    #[must_use]
    pub fn new(timeout: Duration) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), timeout })
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a question, by its nonce, for its author.
    #[must_use]
    pub fn open(self: &Arc<Self>, nonce: &str, author: &str) -> Question {
        let key = nonce.to_owned();
        let (send, answer) = oneshot::channel();
        let open = Open { author: author.to_owned(), answer: send };
        self.questions().insert(key.clone(), open);
        let buttons = [format!("sage:{key}:yes"), format!("sage:{key}:no")];
        Question { buttons, key, approvals: Arc::clone(self), answer }
    }

    /// Judges a press.
    pub fn press(&self, custom_id: &str, user: &str) -> Pressed {
        let parts: Vec<&str> = custom_id.split(':').collect();
        let ["sage", key, word @ ("yes" | "no")] = parts[..] else { return Pressed::Foreign };
        let mut questions = self.questions();
        match questions.get(key) {
            None => return Pressed::Void,
            Some(open) if open.author != user => return Pressed::NotYours,
            Some(_) => {}
        }
        let yes = word == "yes";
        match questions.remove(key).map(|open| open.answer.send(yes)) {
            Some(Ok(())) => Pressed::Decided(yes),
            _ => Pressed::Void,
        }
    }
}

impl Question {
    /// Waits for the author. No answer is a no.
    pub async fn answer(mut self) -> bool {
        let timeout = self.approvals.timeout;
        matches!(tokio::time::timeout(timeout, &mut self.answer).await, Ok(Ok(true)))
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.approvals.questions().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Approvals, Pressed};

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn only_the_requester_decides_and_only_once() {
        let approvals = Approvals::new(LONG);
        let question = approvals.open("7-q1", "100");
        let [yes, no] = question.buttons.clone();
        assert_eq!(approvals.press(&yes, "101"), Pressed::NotYours);
        assert_eq!(approvals.press(&yes, "100"), Pressed::Decided(true));
        assert_eq!(approvals.press(&no, "100"), Pressed::Void, "pressed twice");
        assert!(question.answer().await);
    }

    #[tokio::test]
    async fn a_no_is_a_no() {
        let approvals = Approvals::new(LONG);
        let question = approvals.open("7-q1", "100");
        assert_eq!(approvals.press(&question.buttons[1], "100"), Pressed::Decided(false));
        assert!(!question.answer().await);
    }

    #[tokio::test]
    async fn silence_is_a_no_and_a_late_press_is_void() {
        let approvals = Approvals::new(Duration::ZERO);
        let question = approvals.open("7-q1", "100");
        let yes = question.buttons[0].clone();
        assert!(!question.answer().await);
        assert_eq!(approvals.press(&yes, "100"), Pressed::Void);
    }

    #[test]
    fn a_press_after_a_restart_is_void() {
        let before = Approvals::new(LONG).open("7-q1", "100").buttons[0].clone();
        assert_eq!(Approvals::new(LONG).press(&before, "100"), Pressed::Void);
        for foreign in ["", "sage", "sage:7-q1", "sage:7-q1:maybe", "other:7-q1:yes"] {
            assert_eq!(Approvals::new(LONG).press(foreign, "100"), Pressed::Foreign, "{foreign}");
        }
    }
}
