//! What the documents say of the program, and what the program's parts say of each other: held
//! together with the sources, so that neither drifts.

mod commands;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::programs::program;
use serde_json::Value;

/// What is installed.
const PRODUCT: [&str; 7] =
    ["protocol", "policy", "confine", "logs", "setup", "executor", "connector"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace is there")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = top().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust source below a folder of the workspace, by its path from there.
fn sources(folder: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(top().join(&folder)).expect("it is a folder") {
            let entry = entry.expect("it can be listed");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Lines of code that hold one of these words, as `path:line: text`. Comments do not count.
fn lines_with(folder: &str, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources(folder) {
        for (number, line) in read(&path).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if words.iter().any(|word| has_word(code, word)) {
                found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    found
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

/// What `sage-executor authority` prints stands in the threat model, and nothing else between.
#[test]
fn the_threat_model_shows_the_authority_table_as_the_executor_prints_it() {
    let output = Command::new(program("sage-executor")).arg("authority").env_clear().output();
    let output = output.expect("it starts");
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).expect("it is UTF-8");
    let document = read("docs/threat-model.md");
    let (_, rest) = document.split_once("<!-- authority table -->").expect("the marker");
    let (shown, _) = rest.split_once("<!-- /authority table -->").expect("the closing marker");
    let shown = shown.trim().trim_start_matches("```text").trim_matches('`').trim_matches('\n');
    assert!(
        shown == table.trim_end_matches('\n'),
        "docs/threat-model.md must show, between the markers:\n\n{table}"
    );
}

/// Names of tests in backticks, as `module::test_name`.
fn named_tests(document: &str) -> Vec<String> {
    let names = document.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        let word = |word: &str| {
            !word.is_empty()
                && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
        };
        name.contains("::") && name.split("::").all(word)
    };
    names.filter(is_name).map(str::to_owned).collect()
}

/// Whether a source that lies in the named module has the named test.
fn exists(name: &str, all: &[(PathBuf, String)]) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let (test, modules) = parts.split_last().expect("a name has a part");
    all.iter().any(|(path, text)| {
        let path = path.with_extension("");
        let lies_in = |module: &&str| {
            path.components().any(|part| part.as_os_str() == *module)
                || text.contains(&format!("mod {module} {{"))
        };
        modules.iter().all(lies_in) && text.contains(&format!("fn {test}("))
    })
}

#[test]
fn every_test_that_the_documents_name_exists() {
    let folders = ["tests/suite", "policy/tests"].map(str::to_owned);
    let folders = folders.into_iter().chain(PRODUCT.map(|product| format!("{product}/src")));
    let all: Vec<(PathBuf, String)> = folders
        .flat_map(|folder| sources(&folder))
        .map(|path| {
            let text = read(&path);
            (path, text)
        })
        .collect();
    let mut missing = Vec::new();
    for document in ["docs/threat-model.md", "docs/requirements.md", "docs/git-differences.md"] {
        let names = named_tests(&read(document));
        assert!(!names.is_empty(), "{document} names tests");
        let gone = names.iter().filter(|name| !exists(name, &all));
        missing.extend(gone.map(|name| format!("{document}: {name}")));
    }
    assert!(missing.is_empty(), "no such test:\n{}", missing.join("\n"));
    assert!(!exists("docs::no_such_test", &all), "a name that is not there is found missing");
}

fn cargo_metadata(more: &[&str]) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(more)
        .current_dir(top())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("it is a list")
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("it is a word")
}

/// What each crate of the workspace names in its Cargo.toml, for building it and for its tests.
fn direct() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = cargo_metadata(&["--no-deps"]);
    let crates = list(&metadata, "packages").iter();
    crates
        .map(|package| {
            let names =
                list(package, "dependencies").iter().map(|one| word(one, "name").to_owned());
            (word(package, "name").to_owned(), names.collect())
        })
        .collect()
}

/// What a crate of the workspace is built from, all the way down.
fn tree(name: &str) -> BTreeSet<String> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = cargo_metadata(&["--filter-platform", &host]);
    let packages = list(&metadata, "packages");
    let names: BTreeMap<&str, &str> =
        packages.iter().map(|package| (word(package, "id"), word(package, "name"))).collect();
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"], "nodes").iter().map(|node| (word(node, "id"), node)).collect();
    let start = names.iter().find(|(_, other)| **other == name).expect("it is in the workspace").0;
    let (mut seen, mut next) = (BTreeSet::new(), vec![*start]);
    while let Some(id) = next.pop() {
        if !seen.insert(id) {
            continue;
        }
        for one in list(nodes[id], "deps") {
            if list(one, "dep_kinds").iter().any(|kind| kind["kind"] != "dev") {
                next.push(word(one, "pkg"));
            }
        }
    }
    seen.into_iter().map(|id| names[id].to_owned()).collect()
}

#[test]
fn every_dependency_has_its_line_and_every_line_its_dependency() {
    let document = read("docs/dependencies.md");
    let rows = document
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .skip_while(|row| row.is_empty());
    let cells = rows.filter_map(|row| row.split_once(" |")).map(|(cell, _)| cell);
    let described: BTreeSet<String> = cells
        .filter(|cell| *cell != "crate")
        .flat_map(|cell| cell.split(", "))
        .map(str::to_owned)
        .collect();
    let used: BTreeSet<String> =
        direct().into_values().flatten().filter(|name| !name.starts_with("sage-")).collect();
    let without: Vec<_> = used.difference(&described).collect();
    assert!(without.is_empty(), "docs/dependencies.md has no line for {without:?}");
    let unused: Vec<_> = described.difference(&used).collect();
    assert!(unused.is_empty(), "docs/dependencies.md describes what nothing uses: {unused:?}");
}

#[test]
fn the_connector_is_built_without_anything_that_touches_repositories() {
    let connector = tree("sage-connector");
    assert!(connector.contains("tarpc") && connector.contains("sage-protocol"));
    let executor = tree("sage-executor");
    assert!(!connector.contains("sage-executor"));
    let gix: Vec<_> = connector.iter().filter(|name| name.starts_with("gix")).collect();
    assert!(gix.is_empty(), "the connector is built with {gix:?}");
    assert!(executor.contains("gix"));
}

#[test]
fn neither_program_depends_on_the_other_and_each_part_on_those_below_it_alone() {
    let direct = direct();
    let ours = |name: &str| -> Vec<&str> {
        direct[name].iter().map(String::as_str).filter(|name| name.starts_with("sage-")).collect()
    };
    assert!(ours("sage-protocol").is_empty());
    assert_eq!(ours("sage-policy"), ["sage-protocol"]);
    assert!(ours("sage-confine").is_empty());
    assert!(ours("sage-logs").is_empty());
    assert!(ours("sage-setup").is_empty());
    let below = ["sage-confine", "sage-logs", "sage-policy", "sage-protocol", "sage-setup"];
    assert_eq!(ours("sage-executor"), below);
    assert!(ours("sage-connector").iter().all(|name| below.contains(name)));
}

#[test]
fn policy_decides_and_does_nothing_else() {
    let direct = direct();
    for name in ["tokio", "nix", "rustix", "gix", "tempfile", "landlock", "tracing"] {
        assert!(!direct["sage-policy"].contains(name), "policy depends on {name}");
    }
    let acts = ["fs", "net", "process", "env", "thread", "time", "io", "os"];
    let acts = acts.map(|module| format!("std::{module}"));
    let acts: Vec<&str> = acts.iter().map(String::as_str).chain(["async", "tokio"]).collect();
    assert_eq!(lines_with("policy/src", &acts), [""; 0], "policy is pure");
    assert!(!lines_with("executor/src", &acts).is_empty(), "the executor is not");
}

#[test]
fn protocol_opens_nothing_but_the_socket() {
    let opens = [
        "fs",
        "env",
        "File::open",
        "File::create",
        "OpenOptions",
        "Command",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "UnixDatagram",
        "UnixListener::bind",
    ];
    assert_eq!(lines_with("protocol/src", &opens), [""; 0]);
    let socket = lines_with("protocol/src", &["UnixStream::connect"]);
    assert_eq!(socket.len(), 1, "it connects in one place: {socket:?}");
}

#[test]
fn no_product_source_is_unsafe_and_the_compiler_forbids_it() {
    for product in PRODUCT {
        assert_eq!(lines_with(&format!("{product}/src"), &["unsafe"]), [""; 0]);
    }
    let manifest = read("Cargo.toml");
    let (_, lints) = manifest.split_once("[workspace.lints.rust]").expect("there are lints");
    let (lints, _) = lints.split_once("\n[").unwrap_or((lints, ""));
    assert!(lints.lines().any(|line| line == "unsafe_code = \"forbid\""), "{lints}");
    for member in PRODUCT.iter().chain(&["tests"]) {
        let manifest = read(format!("{member}/Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{member} takes the lints");
    }
}

#[test]
fn no_file_of_the_suite_is_forgotten() {
    let mut forgotten = Vec::new();
    for path in sources("tests/suite") {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("it is UTF-8");
        let folder = path.parent().expect("it lies in a folder");
        let parent = match folder.file_name().and_then(|name| name.to_str()) {
            _ if path == Path::new("tests/suite/main.rs") => continue,
            Some("suite") | None => folder.join("main.rs"),
            Some(_) => folder.with_extension("rs"),
        };
        let text = read(&parent);
        if !text.lines().any(|line| line.trim_end() == format!("mod {name};")) {
            forgotten.push(format!("{} has no `mod {name};`", parent.display()));
        }
    }
    assert!(forgotten.is_empty(), "{forgotten:#?}");
}
