//! What a close code means for the session.

/// What to do after a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Resume the session.
    Resume,
    /// Begin a new one.
    Anew,
    /// Nothing: it would be the same again. What it means, and what to do.
    Fatal(&'static str),
}

/// What to do after a close with this code, or without one.
#[must_use]
pub fn next(code: Option<u16>) -> Next {
    match code {
        Some(code) => match fatal(code) {
            Some(what) => Next::Fatal(what),
            // Not authenticated, invalid sequence, session timed out; and the two normal ones.
            None if matches!(code, 4003 | 4007 | 4009) => Next::Anew,
            None => Next::Resume,
        },
        None => Next::Resume,
    }
}

/// What 4004 means; a 401 of REST means the same.
pub const NO_TOKEN: &str = "Discord does not take the bot's token (4004); reset it in the developer portal \
    under Bot, and put the new one where `discord.token` says";

/// What a code means after which nothing will get better by itself.
#[must_use]
pub fn fatal(code: u16) -> Option<&'static str> {
    Some(match code {
        4004 => NO_TOKEN,
        4010 => "Discord refuses the shard (4010); this program asks for none: report it",
        4011 => {
            "the bot is in so many guilds that Discord wants shards (4011); use a bot of its own"
        }
        4012 => {
            "Discord no longer knows this gateway version (4012); install a newer sage-connector"
        }
        4013 => "Discord does not know these intents (4013); install a newer sage-connector",
        4014 => {
            "the message content intent is not granted (4014); switch it on in the developer portal: \
             Bot, Privileged Gateway Intents, Message Content Intent"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Next, next};

    #[test]
    fn every_code_has_its_consequence() {
        let mut fatal = Vec::new();
        let mut anew = Vec::new();
        for code in 0..=u16::MAX {
            match next(Some(code)) {
                Next::Fatal(what) => {
                    assert!(what.contains(&format!("({code})")), "{what}");
                    fatal.push(code);
                }
                Next::Anew => anew.push(code),
                Next::Resume => {}
            }
        }
        assert_eq!(fatal, [4004, 4010, 4011, 4012, 4013, 4014]);
        assert_eq!(anew, [4003, 4007, 4009]);
        assert_eq!(next(None), Next::Resume);
    }
}
