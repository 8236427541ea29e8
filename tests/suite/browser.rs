//! `show --html` in a real browser: what is shown is the turn, and it looks like something.

use std::path::Path;
use std::process::Command;

use harness::service::Place;
use harness::world::World;
use nix::sys::signal::Signal;

/// Chromium without a window, a profile of its own, and no network but what the page asks for: nothing.
fn chromium(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("chromium is there; tests/run installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// How many bytes a picture takes, and its width and height.
fn picture(path: &Path) -> (usize, u32, u32) {
    let png = std::fs::read(path).expect("the picture is there");
    assert_eq!(&png[1..4], b"PNG");
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    (png.len(), number(16), number(20))
}

#[test]
fn a_turn_is_a_page_that_a_browser_shows() {
    let world = World::builder().build();
    let place = Place::new(world.base(), &world.socket());
    let mut sage = place.start();
    let message = place.say("write strategy/<b>plan</b>.md: hello");
    let _ = place.record(message);
    let asked = place.say("commit strategy/plans/one.md: <script>alert(1)</script>");
    let _ = place.record(asked);
    // Once it has ended, what became of each answer is written down.
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0), "{}", place.log());
    for (id, expected) in [(message, "write_file"), (asked, "git_commit")] {
        let shown = place.command(&["show", &id.to_string(), "--html"]);
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        let page = world.base().join("turn.html");
        std::fs::write(&page, &shown.stdout).expect("it is ours");
        let url = format!("file://{}", page.display());
        let dom = chromium(world.base(), &["--dump-dom", &url]);
        let dom = String::from_utf8(dom).expect("it is UTF-8");
        for text in [expected, &id.to_string(), "Owner", "confirmed"] {
            assert!(dom.contains(text), "{text}: {dom}");
        }
        assert!(!dom.contains("<b>plan</b>") && !dom.contains("<script"), "{dom}");

        let size = "--window-size=900,1200";
        let shot = |name: &str, url: &str| {
            let to = format!("--screenshot={}", world.base().join(name).display());
            chromium(world.base(), &[&to, size, url]);
            picture(&world.base().join(name))
        };
        let blank = shot("blank.png", "about:blank");
        let full = shot("turn.png", &url);
        assert_eq!((full.1, full.2), (900, 1200));
        if let Some(to) = std::env::var_os("SAGE_KEEP_PICTURES") {
            let to = Path::new(&to).join(format!("{id}.png"));
            std::fs::copy(world.base().join("turn.png"), to).expect("it can be kept");
        }
        assert!(full.0 > 5 * blank.0, "something is drawn: {full:?} beside {blank:?}");
    }
}
