// SPDX-License-Identifier: MIT OR Apache-2.0
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::fixture::{Fixture, snapshot};
use super::*;
use crate::config::PatchSource;
use crate::fs;

fn git_source(path: &Path, revision: &str) -> Source {
    Source::Git { repository: Location::Path(path.to_owned()), revision: revision.to_owned() }
}

fn tarball(path: &Path, sha256: Option<&str>) -> Source {
    Source::Tarball { location: Location::Path(path.to_owned()), sha256: sha256.map(str::to_owned) }
}

/// What `acquire` makes of one source: the tree's files, or the error.
async fn check(fixture: &Fixture, source: Source, expected: Result<&[&str], &str>) {
    let found = acquire(std::slice::from_ref(&source), &fixture.path("store")).await;
    match (found, expected) {
        (Ok(tree), Ok(files)) => assert_eq!(names(&tree.root), files, "{source:?}"),
        (Err(error), Err(words)) => {
            let said = chain(&error);
            assert!(said.contains(words), "{said}\n does not say\n{words}");
        }
        (found, _) => panic!("{source:?}: {found:?}, not {expected:?}"),
    }
    let kept = fs::list(&fixture.path("store")).unwrap_or_default();
    assert!(kept.iter().all(|path| !path.display().to_string().contains(".partial-")), "{kept:?}");
}

fn names(root: &Path) -> Vec<String> {
    let relative = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
    snapshot(root).iter().map(|(path, ..)| relative(path)).collect()
}

const PLAIN: &[&str] = &["Kbuild", "Kconfig", "Makefile", "kernel/x.c"];

#[tokio::test]
async fn takes_a_revision_of_a_repository_that_stays_as_it_is() {
    let fixture = Fixture::new();
    let top = fixture.repository("linux").await;
    fixture.git("linux", &["config", "core.autocrlf", "true"]).await;
    fixture.write("linux/kernel/x.c", "not committed\n");
    let before = snapshot(&top);
    check(&fixture, git_source(&top, "v1"), Ok(PLAIN)).await;
    check(&fixture, git_source(&top, "main"), Ok(PLAIN)).await;
    check(&fixture, git_source(&top, "v2"), Err("find revision `v2` in")).await;
    check(&fixture, git_source(&top, "--all"), Err("find revision `--all` in")).await;
    check(&fixture, git_source(&top.join("kernel"), "v1"), Err("this is no git repository")).await;
    check(&fixture, git_source(&fixture.path("none"), "v1"), Err("no such directory")).await;
    assert_eq!(snapshot(&top), before);

    let tree = acquire(&[git_source(&top, "v1")], &fixture.path("store")).await.unwrap();
    assert_eq!(tree.id, fixture.git("linux", &["rev-parse", "v1"]).await.trim());
    assert!(tree.origin.ends_with(": Linux 6.12.3-rc1"), "{}", tree.origin);
    assert_eq!(fs::read_text(&tree.root.join("kernel/x.c")).unwrap(), fixture::numbered(20));
}

#[tokio::test]
async fn fetches_from_a_remote_repository_and_keeps_tags() {
    let fixture = Fixture::new();
    let top = fixture.repository("linux").await;
    let first = fixture.git("linux", &["rev-parse", "HEAD"]).await;
    fixture.write("linux/new.c", "");
    fixture.commit("linux", "new").await;
    let url = format!("file://{}", top.display());
    let source = |revision: &str| Source::Git {
        repository: Location::Url(url.clone()),
        revision: revision.to_owned(),
    };
    let newer = ["Kbuild", "Kconfig", "Makefile", "kernel/x.c", "new.c"];
    check(&fixture, source("v1"), Ok(PLAIN)).await;
    check(&fixture, source("main"), Ok(&newer)).await;
    check(&fixture, source("no"), Err("the server knows no such commit")).await;
    check(&fixture, source("--upload-pack=x"), Err("this is no name")).await;
    std::fs::rename(&top, fixture.path("away")).unwrap();
    check(&fixture, source("v1"), Ok(PLAIN)).await;
    check(&fixture, source(first.trim()), Ok(PLAIN)).await;
    check(&fixture, source("main"), Err("fetch from file://")).await;
}

#[tokio::test]
async fn copies_a_directory_without_what_a_build_left() {
    let fixture = Fixture::new();
    let top = fixture.kernel("linux");
    fixture.write("linux/.gitignore", "*.o\n*.s\n/*\n");
    fixture.write("linux/arch/x86/boot/.gitignore", "zoffset.h\n");
    for product in ["arch/x86/boot/zoffset.h", "kernel/x.o", "kernel/.x.o.cmd", "kernel/x.s", ".config"] {
        fixture.write(&format!("linux/{product}"), "stale");
    }
    for product in ["vmlinux", "include/generated/a.h", "arch/x86/include/generated/b.h", "kernel/x.c.orig"] {
        fixture.write(&format!("linux/{product}"), "stale");
    }
    fixture.write("linux/out/.gitignore", "*\n");
    fixture.write("linux/out/vmlinux.o", "stale");
    std::os::unix::fs::symlink("x.c", top.join("kernel/link.c")).unwrap();
    let before = snapshot(&top);
    let files = [
        ".gitignore",
        "Kbuild",
        "Kconfig",
        "Makefile",
        "arch/x86/boot/.gitignore",
        "kernel/link.c",
        "kernel/x.c",
    ];
    let files = [&files[..], &["out/.gitignore"]].concat();
    check(&fixture, Source::Directory(top.clone()), Ok(&files)).await;
    assert_eq!(snapshot(&top), before);
    check(&fixture, Source::Directory(top.join("kernel")), Err("it has no Makefile")).await;
    check(&fixture, Source::Directory(fixture.path("none")), Err("no such directory")).await;
}

#[tokio::test]
async fn keeps_tracked_files_of_a_working_tree_that_are_ignored() {
    let fixture = Fixture::new();
    let top = fixture.kernel("linux");
    fixture.write("linux/.gitignore", "*.s\n");
    fixture.write("linux/kernel/kept.s", "");
    fixture.repository("linux").await;
    fixture.write("linux/kernel/made.s", "");
    fixture.write("linux/kernel/new.c", "");
    let files =
        [".gitignore", "Kbuild", "Kconfig", "Makefile", "kernel/kept.s", "kernel/new.c", "kernel/x.c"];
    check(&fixture, Source::Directory(top), Ok(&files)).await;
}

#[tokio::test]
async fn a_directorys_id_follows_its_content() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.kernel("one"), fixture.kernel("two"));
    let store = fixture.path("store");
    let id = async |path: &Path| acquire(&[Source::Directory(path.to_owned())], &store).await.unwrap().id;
    let first = id(&one).await;
    assert_eq!(id(&two).await, first);
    fixture.write("one/kernel/x.c", fixture::numbered(20).replace("line 3", "LINE 3"));
    let second = id(&one).await;
    assert_ne!(second, first);
    fixture.write("one/kernel/x.c", fixture::numbered(20));
    assert_eq!(id(&one).await, first);
}

#[tokio::test]
async fn unpacks_an_archive_once_and_only_when_it_is_the_one() {
    let fixture = Fixture::new();
    fixture.kernel("linux");
    fixture.write("other/README", "");
    let (archive, other) = (fixture.archive("linux").await, fixture.archive("other").await);
    let sha256 = store::sha256(&fs::read(&archive).unwrap());
    check(&fixture, tarball(&archive, Some(&"0".repeat(64))), Err("its sha256 is")).await;
    check(&fixture, tarball(&archive, Some(&sha256.to_ascii_uppercase())), Ok(PLAIN)).await;
    check(&fixture, tarball(&archive, None), Ok(PLAIN)).await;
    check(&fixture, tarball(&other, None), Err("it has no Makefile")).await;
    check(&fixture, tarball(&fixture.write("text.tar", "no archive"), None), Err("unpack ")).await;
    check(&fixture, tarball(&fixture.path("none.tar"), None), Err("no such file")).await;
    let broken = fixture.write("short.tar.gz", &fs::read(&archive).unwrap()[..200]);
    check(&fixture, tarball(&broken, None), Err("unpack ")).await;

    // A file that took the archive's place is seen, though nobody asks for its whole content.
    std::fs::copy(&other, &archive).unwrap();
    check(&fixture, tarball(&archive, None), Err("it has no Makefile")).await;
    let url = Location::Url("https://example.org/linux.tar.xz".to_owned());
    check(&fixture, Source::Tarball { location: url.clone(), sha256: None }, Err("gives no sha256")).await;
    check(&fixture, Source::Tarball { location: url, sha256: Some(sha256) }, Ok(PLAIN)).await;
}

#[tokio::test]
async fn several_at_once_unpack_once_and_clear_what_a_killed_one_left() {
    let fixture = Fixture::new();
    fixture.kernel("linux");
    let archive = fixture.archive("linux").await;
    let (store, sources) = (fixture.path("store"), [tarball(&archive, None)]);
    let sha256 = store::sha256(&fs::read(&archive).unwrap());
    let leftover = fixture.write(&format!("store/{sha256}.partial-123/tree/Makefile"), "half");
    let (one, two) = tokio::join!(acquire(&sources, &store), acquire(&sources, &store));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.root, two.root);
    assert_eq!(names(&one.root), PLAIN);
    assert!(!leftover.exists());
}

#[tokio::test]
async fn uses_the_first_alternative_that_is_there() {
    let fixture = Fixture::new();
    let store = fixture.path("store");
    let top = fixture.repository("linux").await;
    fixture.write("other/README", "");
    let package = Source::Debian { package: "linux-source-0.01".to_owned() };
    let sources =
        [package.clone(), git_source(&top, "v9"), git_source(&top, "v1"), Source::Directory(top.clone())];
    let tree = acquire(&sources, &store).await.unwrap();
    assert!(tree.origin.contains("`v1`"), "{}", tree.origin);
    assert_eq!(tree.passed_over.len(), 2, "{:?}", tree.passed_over);

    let error = acquire(&sources[..2], &store).await.unwrap_err();
    let said = error.to_string();
    assert!(error.is_users_fault());
    assert!(
        said.contains("none of the 2 alternatives") && said.contains("apt-get install linux-source-0.01"),
        "{said}"
    );
    assert!(said.contains("find revision `v9`"), "{said}");

    // What is there and wrong is not passed over.
    let wrong = Source::Directory(fixture.path("other"));
    let error = acquire(&[package, wrong, git_source(&top, "v1")], &store).await.unwrap_err();
    assert!(matches!(error, SourceError::NotKernel { .. }), "{error:?}");
}

#[tokio::test]
async fn finds_what_debians_package_installs() {
    let fixture = Fixture::new();
    fixture.kernel("linux-source-6.12");
    fixture.archive("linux-source-6.12").await;
    let store = fixture.path("store");
    let tree = debian::acquire("linux-source-6.12", &fixture.path(""), &store).await.unwrap();
    assert!(tree.origin.starts_with("Debian's package linux-source-6.12, archive "), "{}", tree.origin);
    assert_eq!(names(&tree.root), PLAIN);
}

#[tokio::test]
async fn patching_a_clone_leaves_the_pristine_tree_alone() {
    let fixture = Fixture::new();
    let root = fixture.kernel("linux");
    fixture.write("linux/kernel/old.c", "old\n");
    let tree = Tree::new(root.clone(), "id".to_owned(), "test", None);
    let before = snapshot(&root);
    let clone = fixture.path("clone");
    clone_tree(&tree, &clone).await.unwrap();
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&clone.join("kernel/x.c")), inode(&root.join("kernel/x.c")));
    assert!(matches!(clone_tree(&tree, &clone).await, Err(SourceError::Occupied { .. })));

    let changed = fixture::numbered(20).replace("line 3\n", "line three\n");
    let mut patch = fixture::diff(&fixture, "kernel/x.c", &fixture::numbered(20), &changed).await;
    patch += "diff --git a/Kbuild b/Kbuild\nold mode 100644\nnew mode 100755\n";
    patch += "diff --git a/kernel/old.c b/kernel/new.c\nsimilarity index 100%\nrename from kernel/old.c\n";
    patch += "rename to kernel/new.c\n";
    let file = fixture.write("p.diff", patch);
    let series = read_patches(&[PatchSource::Path(file)], None).await.unwrap();
    apply(&series.patches, &clone).await.unwrap();
    assert_eq!(fs::read_text(&clone.join("kernel/x.c")).unwrap(), changed);
    assert_eq!(names(&clone), ["Kbuild", "Kconfig", "Makefile", "kernel/new.c", "kernel/x.c"]);
    assert_eq!(std::fs::metadata(clone.join("Kbuild")).unwrap().mode() & 0o111, 0o111);
    assert_eq!(std::fs::metadata(root.join("Kbuild")).unwrap().mode() & 0o111, 0);
    assert_eq!(snapshot(&root), before);
}
