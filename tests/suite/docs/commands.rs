//! Every command that README and docs show is run.
//!
//! A block of shell says what becomes of it: `sh run` is run here, in a world of its own, and must
//! end with 0; `sh by-hand` is for a person (it builds, installs, or needs another machine). A block
//! that says neither fails. What the documents name by its place on a real machine is put in the world's
//! place by [`PLACES`]; whoever documents another program's commands adds its places.

use std::path::PathBuf;
use std::process::Command;

use harness::programs::program;
use harness::world::World;

use super::{read, top};

/// A place that documents name, and what the world has for it.
type Place = (&'static str, fn(&World) -> PathBuf);

/// All of them.
const PLACES: &[Place] = &[
    ("/etc/sage/executor.json", |world| world.base().join("executor.json")),
    ("/run/sage/executor.sock", World::socket),
    ("/srv/strategy", |world| world.clone_dir().dir().to_owned()),
    ("/tmp/sage-docs", |world| world.base().join("docs")),
];

/// The documents.
fn documents() -> Vec<String> {
    let mut all = vec!["README.md".to_owned()];
    for entry in std::fs::read_dir(top().join("docs")).expect("there are documents") {
        let name = entry.expect("it can be listed").file_name().into_string().expect("it is UTF-8");
        if name.ends_with(".md") {
            all.push(format!("docs/{name}"));
        }
    }
    all.sort();
    all
}

/// The shell blocks of a document: what each says of itself, and its text.
fn blocks(document: &str) -> Vec<(String, String)> {
    let text = read(document);
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(words) = line.trim_start().strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
        let shell = words.split_whitespace().next().unwrap_or_default();
        if matches!(shell, "sh" | "bash" | "shell" | "console") {
            found.push((words.trim().to_owned(), body.join("\n")));
        }
    }
    found
}

#[test]
fn every_block_of_shell_says_whether_it_is_run_here() {
    let mut silent = Vec::new();
    for document in documents() {
        for (words, body) in blocks(&document) {
            if !matches!(words.as_str(), "sh run" | "sh by-hand") {
                silent.push(format!("{document}: ```{words}\n{body}"));
            }
        }
    }
    assert!(silent.is_empty(), "say `sh run` or `sh by-hand`:\n{}", silent.join("\n"));
}

#[test]
fn every_command_that_the_documents_show_does_what_they_say() {
    let mut run = 0;
    for document in documents() {
        for (words, body) in blocks(&document) {
            if words == "sh run" {
                run_block(&document, &body);
                run += 1;
            }
        }
    }
    assert!(run >= 4, "the documents show some commands");
}

fn run_block(document: &str, body: &str) {
    let world = World::new_plain();
    std::fs::create_dir(world.base().join("docs")).expect("it can be made");
    let mut script = body.to_owned();
    for (place, ours) in PLACES {
        script = script.replace(place, &ours(&world).display().to_string());
    }
    let programs = program("sage-executor").parent().expect("it lies in a folder").to_owned();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .current_dir(world.base())
        .output()
        .expect("bash starts");
    assert!(
        output.status.success(),
        "{document}:\n{script}\n\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
