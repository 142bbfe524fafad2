// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::Write;
use std::path::{Path, PathBuf};

use super::*;
use crate::config::PatchSource;
use crate::source::fixture::{self, Fixture, numbered};

fn paths(files: &[&Path]) -> Vec<PatchSource> {
    files.iter().map(|file| PatchSource::Path(file.to_path_buf())).collect()
}

fn subjects(series: &Series) -> Vec<&str> {
    series.patches.iter().map(|patch| patch.subject.as_str()).collect()
}

/// What reading gives: the subjects in order and whether all notes' words are there, or the error's words.
async fn check(
    sources: &[PatchSource],
    repository: Option<&Path>,
    expected: Result<(&[&str], &[&str]), &str>,
) {
    let found = read_patches(sources, repository).await;
    match (&found, expected) {
        (Ok(series), Ok((titles, notes))) => {
            assert_eq!(subjects(series), titles);
            assert_eq!(series.notes.len(), notes.len(), "{:?}", series.notes);
            for (note, words) in series.notes.iter().zip(notes) {
                assert!(note.contains(words), "{note}\n does not say\n{words}");
            }
        }
        (Err(error), Err(words)) => {
            let said = error.to_string();
            assert!(said.contains(words), "{said}\n does not say\n{words}");
        }
        _ => panic!("{found:?}\n instead of\n{expected:?}"),
    }
}

async fn check_text(fixture: &Fixture, text: impl AsRef<[u8]>, expected: Result<(&[&str], &[&str]), &str>) {
    let file = fixture.write("in/patches.mbox", text);
    check(&paths(&[&file]), None, expected).await;
}

/// Another version of a mail, with a diff of its own.
fn version(mail: &str, version: u32) -> String {
    mail.replace("[PATCH ", &format!("[PATCH v{version} "))
        .replace("2024", &format!("2025 v{version}"))
        .replace("+one", &format!("+one {version}"))
        .replace("+two", &format!("+two {version}"))
}

#[tokio::test]
async fn reads_mailboxes() {
    let fixture = Fixture::new();
    let mails = fixture.series("linux").await;
    let [cover, one, two, three] = mails.as_slice() else { panic!("{mails:?}") };
    let all: &[&str] = &["one", "two", "three"];
    let ok = |notes: &'static [&'static str]| Ok((all, notes));
    let covered = ok(&["left out a cover letter"]);
    check_text(&fixture, mails.concat(), covered).await;
    check_text(&fixture, [three, two, cover, one].map(String::as_str).concat(), covered).await;
    check_text(&fixture, [one, two, three].map(String::as_str).concat(), ok(&[])).await;

    let reply = two.replace("Subject: [PATCH 2/3]", "Subject: Re: [PATCH 2/3]");
    let with_reply = [one.as_str(), &reply, three, two].concat();
    check_text(&fixture, with_reply, ok(&["left out 1 reply"])).await;
    let twice = [one.as_str(), two, three, two].concat();
    check_text(&fixture, twice, ok(&["left out a second copy: `two`"])).await;
    let both = [one.as_str(), two, three, &version(one, 2), &version(two, 2), &version(three, 2)].concat();
    check_text(&fixture, both, ok(&["took version 2 of the series and left out version 1"])).await;

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(mails.concat().as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    check_text(&fixture, &gzip, covered).await;
    check_text(&fixture, &gzip[..100], Err("decompress ")).await;
}

#[tokio::test]
async fn refuses_what_is_no_complete_series() {
    let fixture = Fixture::new();
    let mails = fixture.series("linux").await;
    let [cover, one, two, three] = mails.as_slice() else { panic!("{mails:?}") };
    let join = |mails: &[&str]| mails.concat();
    let cases = [
        (join(&[one, three]), "2/3 is missing of the 3 patches"),
        (join(&[cover, two]), "1/3, 3/3 are missing of the 3 patches"),
        (join(&[two]), "1/3, 3/3 are missing"),
        (join(&[cover]), "only mails without a diff (a cover letter?)"),
        (join(&[&one.replace("[PATCH", "Re: [PATCH")]), "there are only replies"),
        (join(&[one, two, three, &two.replace("+two", "+2")]), "patch 2/3 is there twice: `two` and `two`"),
        (join(&[one, &two.replace("2/3", "2/2")]), "different series (of 3 and of 2 patches)"),
        (join(&[one, &two.replace("[PATCH 2/3] ", "")]), "`one` has a number and `two` has none"),
        (
            join(&[one, two, three, &version(one, 2).replace(" one", " uno").replace("1/3", "1/1")]),
            "one of version 1 and one of version 2",
        ),
        (String::new(), "it is empty"),
        ("hello\n".to_owned(), "neither a mail nor a diff"),
        (join(&[one, two, three]).replace('\n', "\r\n"), "`one`: its lines end in CR LF"),
    ];
    for (text, words) in cases {
        check_text(&fixture, text, Err(words)).await;
    }
}

#[tokio::test]
async fn reads_directories_and_single_files() {
    let fixture = Fixture::new();
    let mails = fixture.series("linux").await;
    // Names in the opposite order of the numbers.
    let files: Vec<PathBuf> =
        (0..4).map(|n| fixture.write(&format!("series/{}.patch", 9 - n), &mails[n])).collect();
    fixture.write("series/README", "apply with git am\n");
    fixture.write("series/send.sh", &mails[1]);
    let all: &[&str] = &["one", "two", "three"];
    let series = fixture.path("series");
    let notes = ["README", "send.sh", "a cover letter"];
    check(&paths(&[&series]), None, Ok((all, &notes))).await;

    let [cover, one, two, three] = [&files[0], &files[1], &files[2], &files[3]].map(PathBuf::as_path);
    check(&paths(&[one, two, three]), None, Ok((all, &[]))).await;
    check(&paths(&[one, three]), None, Err("2/3 is missing")).await;
    check(&paths(&[cover]), None, Err("only mails without a diff")).await;
    fixture.write("series/bad.patch", "hello\n");
    check(&paths(&[&series]), None, Err("bad.patch: it holds neither")).await;
    std::fs::write(series.join("bad.patch"), mails[2].replace('\n', "\r\n")).unwrap();
    std::fs::remove_file(two).unwrap();
    check(&paths(&[&series]), None, Err("bad.patch")).await;
    check(&paths(&[&fixture.path("none")]), None, Err("read ")).await;
    let diff = fixture::diff(&fixture, "kernel/x.c", "a\n", "b\n").await;
    let diff = diff.lines().skip(2).collect::<Vec<_>>().join("\n");
    let plain = fixture.write("only.diff", format!("Some words.\n\n{diff}\n"));
    check(&paths(&[&plain]), None, Ok((&["only.diff"], &[]))).await;
}

#[tokio::test]
async fn decodes_mails() {
    let fixture = Fixture::new();
    let diff = fixture::diff(&fixture, "kernel/x.c", "a\n", "é = 1\n").await;
    let body =
        format!("Words.\n---\n\n{diff}").replace('\n', "\r\n").replace('=', "=3D").replace('é', "=C3=A9");
    let mail = format!(
        "From: =?UTF-8?q?J=C3=B6rg?= <j@example.org>\nSubject: [list] [PATCH v2] =?UTF-8?q?mm=3A_=C3=A4?=\n \
         [core] x\nMessage-Id: <1@x>\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\
         Content-Transfer-Encoding: quoted-printable\n\n{body}"
    );
    let file = fixture.write("mail.eml", mail);
    let series = read_patches(&paths(&[&file]), None).await.unwrap();
    let [patch] = series.patches.as_slice() else { panic!("{series:?}") };
    assert_eq!(patch.subject, "mm: ä [core] x");
    assert_eq!(patch.author.as_deref(), Some("Jörg <j@example.org>"));
    assert_eq!(patch.message_id.as_deref(), Some("<1@x>"));
    assert_eq!(patch.files, ["kernel/x.c"]);
    assert!(String::from_utf8_lossy(&patch.diff).contains("\n+é = 1\n"), "{patch:?}");
}

#[tokio::test]
async fn takes_commits_forwards_and_reversed() {
    let fixture = Fixture::new();
    fixture.series("linux").await;
    let top = fixture.path("linux");
    // Settings of the repository and words of a message that would spoil a patch.
    for setting in ["diff.noprefix", "diff.mnemonicPrefix", "format.attach", "log.showSignature"] {
        fixture.git("linux", &["config", setting, "true"]).await;
    }
    fixture.write("linux/kernel/x.c", "all new\n");
    fixture.commit("linux", "four\n\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b").await;
    let range = |range: &str| [PatchSource::Range { repository: None, range: range.to_owned() }];
    let revert =
        |commit: &str| [PatchSource::Revert { repository: Some(top.clone()), commit: commit.to_owned() }];
    check(&range("v1..HEAD"), Some(&top), Ok((&["one", "two", "three", "four"], &[]))).await;
    check(&range("main~1.."), Some(&top), Ok((&["four"], &[]))).await;
    check(&range("HEAD..v1"), Some(&top), Err("there is no commit in this range")).await;
    check(&range("v1"), Some(&top), Err("a range is written A..B")).await;
    check(&range("v1...HEAD"), Some(&top), Err("a range is written A..B")).await;
    check(&range("v1..v7"), Some(&top), Err("there is no commit `v7`")).await;
    check(&range("v1..--all"), Some(&top), Err("there is no commit `--all`")).await;
    check(&range("v1..HEAD"), None, Err("the patch names none")).await;
    check(&revert("HEAD~1"), None, Ok((&["Revert \"three\""], &[]))).await;
    check(&revert("v1"), None, Err("has no parent here")).await;

    let series = read_patches(&range("v1..HEAD"), Some(&top)).await.unwrap();
    let tree = fixture.kernel("clone");
    let applied = apply(&series.patches, &tree).await.unwrap();
    assert_eq!(fixture.read("clone/kernel/x.c"), "all new\n");
    assert_eq!(applied[3].author.as_deref(), Some("Jörg <j@example.org>"));
    let back = read_patches(&revert("HEAD"), None).await.unwrap();
    apply(&back.patches, &tree).await.unwrap();
    assert!(fixture.read("clone/kernel/x.c").contains("three\n"));

    fixture.git("linux", &["checkout", "--quiet", "-b", "side", "v1"]).await;
    fixture.write("linux/y.c", "");
    fixture.commit("linux", "side").await;
    fixture.git("linux", &["merge", "--quiet", "--no-ff", "-m", "merged", "main"]).await;
    check(&range("v1..side"), Some(&top), Err("is a merge")).await;
}

/// Applies diffs, each a patch of its own, to a kernel's tree; gives the result's or the error's words.
async fn applied(fixture: &Fixture, diffs: &[&str]) -> Result<Vec<AppliedPatch>, String> {
    let clone = fixture.kernel("outer/clone");
    let files: Vec<PathBuf> =
        diffs.iter().enumerate().map(|(index, diff)| fixture.write(&format!("{index}.diff"), diff)).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let series = read_patches(&paths(&files), None).await.unwrap();
    let before = fixture::snapshot(&clone);
    let result = apply(&series.patches, &clone).await;
    if result.is_err() {
        assert_eq!(fixture::snapshot(&clone), before, "a series that does not fit has written");
    }
    assert_eq!(
        crate::fs::list(&fixture.path("outer")).unwrap().len(),
        2,
        "something was left beside the clone"
    );
    result.map_err(|error| error.to_string())
}

#[tokio::test]
async fn applies_or_says_why_not() {
    let fixture = Fixture::new();
    // A repository around the clone, which would make git skip files.
    crate::process::Task::new("git")
        .args(["init", "--quiet"])
        .arg(fixture.path("outer"))
        .run()
        .await
        .unwrap();
    let text = numbered(20);
    let change = async |from: &str, to: &str| fixture::diff(&fixture, "kernel/x.c", from, to).await;
    let early = change(&text, &text.replace("line 3\n", "third\n")).await;
    let after = change(&text.replace("line 3\n", "third\n"), &text.replace("line 3\n", "THIRD\n")).await;
    let done = applied(&fixture, &[&early, &after]).await.unwrap();
    assert_eq!(fixture.read("outer/clone/kernel/x.c"), text.replace("line 3\n", "THIRD\n"));
    assert_eq!(done.iter().map(|patch| patch.offset_lines).collect::<Vec<_>>(), [None, None]);
    assert_eq!(done[0].files, ["kernel/x.c"]);

    let longer = format!("a\nb\nc\n{text}");
    let moved = change(&longer, &longer.replace("line 10\n", "tenth\n")).await;
    assert_eq!(applied(&fixture, &[&moved]).await.unwrap()[0].offset_lines, Some(-3));

    let other = text.replace("line 12\n", "other 12\n");
    let late = change(&other, &other.replace("line 3\n", "third\n").replace("line 13\n", "13th\n")).await;
    let missing = early.replace("kernel/x.c", "kernel/y.c");
    let bare = early.replace("a/kernel", "kernel").replace("b/kernel", "kernel");
    let creates = "diff --git a/Kbuild b/Kbuild\nnew file mode 100644\n\
                   --- /dev/null\n+++ b/Kbuild\n@@ -0,0 +1 @@\n+x\n";
    let outside = "--- a/../evil\n+++ b/../evil\n@@ -1 +1 @@\n-a\n+b\n";
    let fuzzy = early.replace(" line 1\n", " LINE 1\n");
    let cases: [(&[&str], &str); 8] = [
        (&[&early, &late], "apply patch 2/2 `1.diff` ("),
        (
            &[&late],
            "hunk 2 of 2 does not fit kernel/x.c\n  @@ -10,7 +10,7 @@ line 9\n  \
             expected at line 11:\n    |line 11\n    |other 12\n    |line 13\n    |line 14\n    |line 15\n  \
             found there:\n    |line 11\n    |line 12\n    |line 13\n    |line 14\n    |line 15",
        ),
        (&[&early, &early], "the source seems to have this patch already"),
        (&[&missing], "there is no kernel/y.c"),
        (&[&bare], "names kernel/x.c without a first part as in a/kernel/x.c"),
        (&[creates], "it creates Kbuild, which is there already"),
        (&[outside], "../evil"),
        (&[&fuzzy], "expected at line 1:\n    |LINE 1\n"),
    ];
    for (diffs, words) in cases {
        let said = applied(&fixture, diffs).await.unwrap_err();
        assert!(said.contains(words), "{said}\n does not say\n{words}");
    }
}

#[tokio::test]
async fn applies_binary_patches_and_awkward_names() {
    let fixture = Fixture::new();
    fixture.repository("linux").await;
    fixture.write("linux/fw.bin", [0, 1, 2, 255, 0]);
    fixture.write("linux/a b\té.c", "x\n");
    fixture.write("linux/empty", "");
    fixture.commit("linux", "odd").await;
    let mail = fixture.git("linux", &["format-patch", "--stdout", "-1"]).await;
    let file = fixture.write("odd.patch", mail);
    let series = read_patches(&paths(&[&file]), None).await.unwrap();
    let clone = fixture.kernel("clone");
    let applied = apply(&series.patches, &clone).await.unwrap();
    assert_eq!(applied[0].files, ["a b\té.c", "empty", "fw.bin"]);
    assert_eq!(std::fs::read(clone.join("fw.bin")).unwrap(), [0, 1, 2, 255, 0]);
    assert_eq!(fixture.read("clone/a b\té.c"), "x\n");
}

#[tokio::test]
async fn a_series_id_follows_bytes_and_order() {
    let fixture = Fixture::new();
    fixture.series("linux").await;
    let range = [PatchSource::Range { repository: None, range: "v1..HEAD".to_owned() }];
    let patches = read_patches(&range, Some(&fixture.path("linux"))).await.unwrap().patches;
    let id = series_id(&patches);
    assert_eq!(series_id(&patches.clone()), id);
    let swapped = [patches[1].clone(), patches[0].clone(), patches[2].clone()];
    assert_ne!(series_id(&swapped), id);
    assert_ne!(series_id(&patches[..2]), id);
    // git's id alone does not see white space, a compiler's line numbers do.
    let mut spaced = patches.clone();
    let text = String::from_utf8(spaced[0].diff.clone()).unwrap().replace("+one", "+ o n e");
    spaced[0].diff = text.into_bytes();
    spaced[0].patch_id = patch_id(&spaced[0].diff).await.unwrap();
    assert_eq!(spaced[0].patch_id, patches[0].patch_id);
    assert_ne!(series_id(&spaced), id);
}

#[test]
fn reads_subjects() {
    let check = |subject: &str, title: &str, is_reply: bool, version: u32, number: Option<(u32, u32)>| {
        let expected = series::Tag { title: title.to_owned(), is_reply, version, number };
        assert_eq!(series::Tag::parse(subject), expected, "{subject}");
    };
    check("[PATCH] mm: x", "mm: x", false, 1, None);
    check("[PATCH 6.12 03/120] mm: x", "mm: x", false, 1, Some((3, 120)));
    check("Re: AW: [RFC PATCH net-next v2 03/10] x", "x", true, 2, Some((3, 10)));
    check("[PATCHv3,RESEND 1/2] [media] x", "[media] x", false, 3, Some((1, 2)));
    check("[linux-mm] [RFC V4] x", "x", false, 4, None);
    check("[media] x", "[media] x", false, 1, None);
    check("sched/fair: re: x", "sched/fair: re: x", false, 1, None);
}
