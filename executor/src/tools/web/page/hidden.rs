//! What a page has in it and does not show to its readers.

/// Elements whose content is no text of the page.
pub(super) fn no_text(name: &str) -> bool {
    matches!(
        name,
        "script"
            | "style"
            | "template"
            | "textarea"
            | "select"
            | "datalist"
            | "iframe"
            | "object"
            | "embed"
            | "svg"
            | "math"
            | "canvas"
            | "audio"
            | "video"
            | "noembed"
            | "noframes"
            | "title"
            | "xmp"
            | "plaintext"
            | "noscript"
    )
}

/// Whether these attributes hide an element.
pub(super) fn hides<'a>(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    attributes.into_iter().any(|(name, value)| match name {
        "hidden" => true,
        "style" => style_hides(value),
        _ => false,
    })
}

fn style_hides(style: &str) -> bool {
    style.split(';').any(|declaration| {
        let Some((property, value)) = declaration.split_once(':') else { return false };
        let value = value.trim().to_ascii_lowercase();
        let value = value.trim_end_matches("!important").trim();
        let nothing = || {
            let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
            number.trim().parse::<f64>().is_ok_and(|number| number == 0.0)
        };
        match property.trim().to_ascii_lowercase().as_str() {
            "display" => value == "none",
            "visibility" => matches!(value, "hidden" | "collapse"),
            "content-visibility" => value == "hidden",
            "font-size" | "opacity" => nothing(),
            _ => false,
        }
    })
}
