//! The packages bring the manual and completions of the very programs that they bring.

use std::path::Path;
use std::process::Command;

use harness::systemd::packages;

fn ran(program: impl AsRef<std::ffi::OsStr>, arguments: &[&Path]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn a_package_holds_every_page_and_each_shells_completions_as_its_program_writes_them() {
    let folder = tempfile::tempdir().expect("a folder");
    packages(folder.path());
    for program in ["sage-executor", "sage-connector"] {
        let root = folder.path().join(program);
        let entries = folder.path().read_dir().expect("it is ours").flatten();
        let package = entries
            .map(|entry| entry.path())
            .find(|path| {
                path.extension().is_some_and(|end| end == "deb")
                    && path.to_string_lossy().contains(program)
            })
            .expect("it was made");
        ran("dpkg-deb", &[Path::new("-x"), &package, &root]);

        let binary = root.join("usr/bin").join(program);
        let expected = folder.path().join(format!("{program}-man"));
        ran(&binary, &[Path::new("man"), &expected]);
        let shipped = root.join("usr/share/man/man1");
        let pages: Vec<_> = expected.read_dir().expect("it was written").flatten().collect();
        assert!(pages.len() > 5, "{pages:?}");
        assert_eq!(pages.len(), shipped.read_dir().expect("it is shipped").count());
        for page in pages {
            let zipped = shipped.join(page.file_name()).with_extension("1.gz");
            let text = std::fs::read(page.path()).expect("it was written");
            assert_eq!(ran("gzip", &[Path::new("-dc"), &zipped]), text, "{}", zipped.display());
        }

        for (shell, place) in [
            ("bash", format!("bash-completion/completions/{program}")),
            ("zsh", format!("zsh/vendor-completions/_{program}")),
            ("fish", format!("fish/vendor_completions.d/{program}.fish")),
        ] {
            let there = std::fs::read(root.join("usr/share").join(place)).expect("it is shipped");
            let written = ran(&binary, &[Path::new("completions"), Path::new(shell)]);
            assert!(there == written && !there.is_empty(), "{program}: {shell}");
        }
    }
}
