//! The table of credential shapes, measured: nothing is missed, and honest text is left alone.
//!
//! The corpus is made by recipe from a fixed seed, so that this repository holds no string that
//! looks like a credential.

use policy::secret::{Finding, find, find_all, mask, mask_and_cut, mask_bytes, table};

#[path = "secrets/cases.rs"]
mod cases;
#[path = "secrets/dice.rs"]
mod dice;
#[path = "secrets/innocent.rs"]
mod innocent;
#[path = "secrets/properties.rs"]
mod properties;
#[path = "secrets/recipes.rs"]
mod recipes;

use dice::{ALNUM, Dice};

/// Surroundings: what stands before and after, and whether they suit only what can be in a URL.
const CONTEXTS: &[(&str, &str, bool)] = &[
    ("", "", false),
    ("", "\n", false),
    ("the key is ", " and that is all", false),
    ("API_KEY=\"", "\"\n", false),
    ("GITHUB_TOKEN=", "\nNEXT=1\n", false),
    ("{\"key\": \"", "\", \"n\": 1}", false),
    ("  token: ", "\n  other: value\n", false),
    ("secret:", "\n", false),
    ("bot.run(\"", "\")", false),
    ("call(", ", next)", false),
    ("`", "`", false),
    ("<", ">", false),
    ("(see ", ")", false),
    ("It is ", ".", false),
    ("It is ", ". Next sentence", false),
    ("@@ -1 +1 @@\n+", "\n context", false),
    ("@@ -1 +1 @@\n-", "\n context", false),
    ("line\\n", "\\nline", false),
    ("a\\u003d", "\\u0026b", false),
    ("\u{1b}[31m", "\u{1b}[0m", false),
    ("Schlüssel→", "←日本語", false),
    ("日本語「", "」です", false),
    ("\t", "\t", false),
    ("https://x-access-token:", "@git.example.com/o/r.git", true),
    ("https://h.example/p?access_token=", "&page=2", true),
    ("Authorization: Bearer ", "\r\nHost: h\r\n", true),
    ("%20", "%20", true),
    ("%22", "%22%7D", true),
    ("notes-", "", true),
    ("feature/", " branch", true),
];

fn masked_between(before: &str, after: &str, text: &str) -> bool {
    let masked = mask(text);
    let middle = masked.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    middle.is_some_and(|middle| {
        middle.starts_with("[masked: ") && middle.find(']') == Some(middle.len() - 1)
    })
}

#[test]
fn every_credential_is_masked_whole_in_every_context_and_its_neighbours_stay() {
    let (mut tried, mut missed) = (0, Vec::new());
    for seed in 1..=12 {
        let mut dice = Dice::new(seed);
        for recipe in recipes::all() {
            for &(before, after, inline) in CONTEXTS {
                if (inline && !recipe.inline) || (before == "notes-" && !recipe.glue) {
                    continue;
                }
                let text = format!("{before}{}{after}", recipe.make(&mut dice));
                tried += 1;
                if !masked_between(before, after, &text) {
                    missed.push(format!("{}: {text:?} -> {:?}", recipe.name, mask(&text)));
                }
            }
        }
    }
    assert!(tried > 20_000, "{tried}");
    assert!(
        missed.is_empty(),
        "{} of {tried}:\n{}",
        missed.len(),
        missed[..missed.len().min(40)].join("\n")
    );
}

#[test]
fn every_credential_is_called_by_its_name_also_after_a_prefix_and_beside_another() {
    let mut dice = Dice::new(77);
    for recipe in recipes::all() {
        let (one, two) = (recipe.make(&mut dice), recipe.make(&mut dice));
        let found = |text: &str| find(text).map(|finding| finding.name);
        assert_eq!(found(&one), Some(recipe.name), "{one}");
        assert!(table().any(|(name, _)| name == recipe.name), "{}", recipe.name);
        let mask_of_it = format!("[masked: {}]", recipe.name);
        assert_eq!(mask(&format!("{one} {two}")), format!("{mask_of_it} {mask_of_it}"));
        if recipe.glue {
            assert_eq!(mask(&format!("prefix_{one}, x")), format!("prefix_{mask_of_it}, x"));
        }
    }
}

#[test]
fn values_are_found_by_the_name_they_are_given_to() {
    let mut dice = Dice::new(5);
    let lines = [
        ("aws_secret_access_key = ", "\n", 40),
        ("AWS_SECRET_ACCESS_KEY=", "\n", 40),
        ("\"secretAccessKey\": \"", "\",", 40),
        ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=", "==;EndpointSuffix=core", 86),
        ("CLOUDFLARE_API_TOKEN=", "\n", 40),
        ("TWILIO_AUTH_TOKEN: ", "\n", 32),
        ("gitea_token: '", "'", 40),
        ("password = \"", "\"", 24),
        ("?sv=2024&sig=", "&se=1", 44),
    ];
    for _ in 0..40 {
        for (before, after, length) in lines {
            let text = format!("{before}{}{after}", dice.token(ALNUM, length));
            let after = after.trim_start_matches('=');
            assert!(masked_between(before, after, &text), "{text} -> {}", mask(&text));
        }
        let text = format!("Authorization: token {}\n", dice.text(dice::HEX, 40));
        assert!(masked_between("Authorization: token ", "\n", &text), "{text}");
    }
}

/// Innocent texts that are found all the same, each with the reason why that is accepted.
const ACCEPTED: &[(&str, &str)] = &[];

#[test]
fn honest_text_is_left_alone() {
    let mut texts: Vec<String> = innocent::FIXED.lines().map(str::to_owned).collect();
    texts.push(innocent::FIXED.to_owned());
    for seed in 1..=120 {
        texts.extend(innocent::batch(&mut Dice::new(1000 + seed)));
    }
    let wrong = |text: &&String| !ACCEPTED.iter().any(|(known, _)| text.contains(known));
    let alarms: Vec<_> = texts
        .iter()
        .filter(wrong)
        .filter_map(|text| {
            find(text).map(|f| format!("{f:?} {:?} in {text:.300}", &text[f.start..f.end]))
        })
        .collect();
    assert!(texts.len() > 8_000, "{}", texts.len());
    assert!(ACCEPTED.len() * 1000 < texts.len());
    assert!(alarms.is_empty(), "{} of {}:\n{}", alarms.len(), texts.len(), alarms.join("\n"));
}

#[test]
fn findings_are_sorted_and_apart() {
    let mut dice = Dice::new(9);
    let all: Vec<_> = recipes::all().iter().map(|recipe| recipe.make(&mut dice)).collect();
    let found = find_all(&all.join(" | "));
    assert_eq!(found.len(), all.len());
    assert!(found.windows(2).all(|two: &[Finding]| two[0].end <= two[1].start));
}

#[test]
fn bytes_that_are_no_text_are_masked_too() {
    let token = format!("gh{}_{}", "p", Dice::new(3).token(ALNUM, 36));
    let bytes = [b"\xff\xfe ".as_slice(), token.as_bytes(), b"\xc3"].concat();
    assert_eq!(mask_bytes(&bytes), "\u{fffd}\u{fffd} [masked: GitHub token]\u{fffd}");
}

#[test]
fn a_cut_never_shows_a_piece_of_a_mask() {
    let token = format!("gh{}_{}", "p", Dice::new(3).token(ALNUM, 36));
    let text = format!("é {token} {token}");
    for max in 0..80 {
        let (cut, short) = mask_and_cut(&text, max);
        assert!(cut.len() <= max && mask(&text).starts_with(&cut));
        assert_eq!(short, cut != mask(&text));
        assert_eq!(cut.matches('[').count(), cut.matches(']').count(), "{cut}");
    }
}
