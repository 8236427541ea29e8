//! Pages as files beside the text that they become, so that a change of a library or of ours is seen.
//! `SAGE_WRITE_SNAPSHOTS=1` writes the texts anew; what it wrote is read before it is committed.

use std::fs;
use std::path::PathBuf;

use executor::tools::web::page::{Job, read};

#[test]
fn each_page_becomes_its_text() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/suite/web/pages"));
    let mut pages: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("there are pages")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "html"))
        .collect();
    pages.sort();
    assert!(pages.len() >= 6, "{pages:?}");
    for page in pages {
        let html = fs::read(&page).expect("a page can be read");
        let base = "https://pub.example/docs/page.html".to_owned();
        for bare in [false, true] {
            let job = Job { html: true, charset: None, base: base.clone(), bare };
            let read = read(&job, &html).expect("HTML is text");
            assert_eq!(read.bare, bare, "{}", page.display());
            let said = format!(
                "title: {}\nlossy: {}, hidden left out: {}\n\n{}\n",
                read.title.as_deref().unwrap_or("(none)"),
                read.lossy,
                read.hidden_left_out,
                read.text
            );
            let kept = page.with_extension(if bare { "bare.txt" } else { "txt" });
            if std::env::var_os("SAGE_WRITE_SNAPSHOTS").is_some() {
                fs::write(&kept, &said).expect("a snapshot can be written");
            }
            let expected = fs::read_to_string(&kept).unwrap_or_default();
            assert_eq!(said, expected, "{}", kept.display());
        }
    }
}
