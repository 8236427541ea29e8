//! A page through the real executor, all the way. A public address is needed for that, so this thread
//! leaves for a network namespace of its own, whose only interface is loopback: nothing can leave it, and
//! the address stands on that interface. It needs root, and fails without.

use std::net::SocketAddr;
use std::process::Command;

use harness::calls::{read_output, web_fetch};
use harness::https::authority::Authority;
use harness::web::net::PUBLIC;
use harness::web::server::{Server, html, redirect};
use harness::world::World;
use nix::sched::{CloneFlags, unshare};
use protocol::refusal::Code;
use protocol::reply::{OutputPage, WebPage};
use serde_json::json;

fn ip(arguments: &[&str]) {
    let program = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists());
    let status = Command::new(program.expect("iproute2 is installed")).args(arguments).status();
    assert!(status.expect("it starts").success(), "{arguments:?}");
}

#[test]
fn a_page_is_fetched_by_the_real_executor_all_the_way() {
    // This thread alone, and what it starts.
    unshare(CloneFlags::CLONE_NEWNET).expect("root may leave for a namespace of its own");
    ip(&["link", "set", "lo", "up"]);
    ip(&["address", "add", &format!("{PUBLIC}/32"), "dev", "lo"]);
    let authority = Authority::new().expect("an authority");
    let tls = authority.serve_names(&[&PUBLIC.to_string()]).expect("a certificate");
    let body = format!("<title>T</title><p hidden>no</p><p>{}", "word ".repeat(2000));
    let server = Server::start_at(SocketAddr::new(PUBLIC, 443), Some(tls), move |seen| match seen
        .target()
    {
        "/moved" => redirect("/"),
        "/inside" => redirect("https://127.0.0.1/"),
        _ => html(&body),
    });
    let mut world = World::builder().limit("maxBytes", 1000);
    let folder = tempfile::Builder::new().prefix("sage-ca-").tempdir().expect("a folder");
    let ca_file = folder.path().canonicalize().expect("it is there").join("ca.pem");
    std::fs::write(&ca_file, authority.pem()).expect("a file can be written");
    world = world.web(json!({"caFile": ca_file}));
    let world = world.build();
    let turn = world.turn("Owner");
    let page: WebPage = turn.reply(web_fetch(&format!("https://{PUBLIC}/moved")));
    assert_eq!((page.status, page.untrusted_url.as_str()), (200, "https://93.184.216.34/"));
    assert_eq!(page.untrusted_title.expect("it has one").as_str(), "T");
    assert!(page.hidden_left_out && !page.bare && !page.lossy);
    let cut = page.untrusted_text.cut.expect("it is longer");
    let more: OutputPage = turn.reply(read_output(&cut.handle, cut.next_offset));
    assert!(more.untrusted_text.as_str().contains("word"));
    turn.refused_by(Code::AddressRefused, web_fetch(&format!("https://{PUBLIC}/inside")));
    assert_eq!(server.seen().len(), 3);
    let lines = world.audit_lines();
    let done = lines.iter().find(|line| line["event"] == "done" && line["tool"] == "web_fetch");
    let done = done.expect("it is audited");
    assert_eq!((done["status"].as_u64(), &done["digest"]), (Some(200), &json!(page.digest)));
    assert!(!serde_json::to_string(&lines).expect("JSON").contains("word"));
}
