//! Configuration: what the files say, what an edit leaves alone, and changes at run time on a real disk.

use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::world::Disk;
use crate::world::forgetful::Forgetful;
use crate::world::tokio_host;
use crate::world::with_disk::with_disk;

fn flat(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (section, entries) in ini::settings(text) {
        out.extend(entries.iter().map(|(key, value)| format!("{section}|{key}|{value}")));
    }
    out
}

#[test]
fn lines_are_read_as_couchdb_reads_them() {
    let text = "; comment\n# comment\n[couchdb]\n  max_document_size = 8000000 ; bytes\r\nuuid=abc\nuuid = last ;\n\
        [bad] header\n=nothing\nno separator\n[jwt_keys]\nrsa:a=b = -----BEGIN\nhmac:x=YQ==\n\
        [long]\nlist = one,\n two, ; more\n three\n\t not this\n  nor this\n[empty]\nkey =\n";
    let expected = [
        "couchdb|max_document_size|8000000",
        "couchdb|uuid|last",
        "empty|key|",
        "jwt_keys|hmac:x|YQ==",
        "jwt_keys|rsa:a=b|-----BEGIN",
        "long|list|one, two, three",
    ];
    assert_eq!(flat(text), expected);
}

#[test]
fn an_edit_leaves_every_other_line_alone() {
    let text = "; head\n[admins]\n; the boss\n  boss=secret ; plain\n\n[log]\nlevel = info\n; end";
    let edited = ini::edit(text, "admins", "boss", Some("-hash"));
    assert_eq!(edited, text.replace("boss=secret ;", "boss=-hash ;"));
    let added = ini::edit(text, "admins", "second", Some("x"));
    assert_eq!(added, text.replace("; plain\n", "; plain\nsecond = x\n"));
    let fresh = ini::edit(text, "new", "key", Some("v"));
    assert_eq!(fresh, format!("{text}\n\n[new]\nkey = v\n"));
    assert_eq!(ini::edit(text, "log", "level", None), text.replace("level = info\n", ""));
    assert_eq!(ini::edit(text, "log", "nothing", None), text);
    assert_eq!(ini::edit("", "a", "b", Some("c")), "[a]\nb = c\n");
}

#[test]
fn an_edit_replaces_the_last_of_equal_keys_with_its_continuation() {
    let text = "[a]\nk = 1\n[b]\nk = 2\n[a]\r\nk = 3\n four\nnext = 5\n";
    let edited = ini::edit(text, "a", "k", Some("9"));
    assert_eq!(edited, "[a]\nk = 1\n[b]\nk = 2\n[a]\r\nk = 9\nnext = 5\n");
    assert_eq!(ini::edit(text, "a", "k", None), "[a]\n[b]\nk = 2\n[a]\r\nnext = 5\n");
}

#[test]
fn what_a_file_cannot_hold_is_refused() {
    for (section, key, value, error) in [
        ("", "k", "v", ConfigError::InvalidSection),
        ("a]b", "k", "v", ConfigError::InvalidSection),
        ("a", "", "v", ConfigError::InvalidKey),
        ("a", ";k", "v", ConfigError::InvalidKey),
        ("a", "[k", "v", ConfigError::InvalidKey),
        ("a", "k\n[admins]", "v", ConfigError::InvalidKey),
        ("a", "k = j", "v", ConfigError::InvalidKey),
        ("a", "k", "one\ntwo", ConfigError::InvalidValue),
        ("a", "k", "one ; two", ConfigError::InvalidValue),
    ] {
        assert_eq!(ini::check(section, key, value), Err(error), "{section}/{key}={value}");
    }
    assert_eq!(ini::check("a b", "k/with odd=x", "v = w;x [y]"), Ok(()));
    assert_eq!(ini::check("a", "k", ""), Ok(()));
}

/// Lines as people write them, good and bad.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ ]{0,2}[;#=\\[][ a-z=;\\]]{0,6}",
        "\\[[ab]\\]",
        "[ ]{0,2}[kl][ ]{0,2}=[ ]{0,2}[a-z=;, ]{0,8}",
        " [a-z]{1,4}",
        "[ \\t]{0,3}[a-z=; ]{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// An edit does what it says and nothing else, whatever the file looks like, and no comment is lost.
    #[test]
    fn an_edited_file_reads_as_before_but_for_the_edit(
        lines in prop::collection::vec(line(), 0..12),
        endings in prop::sample::select(vec!["\n", "\r\n"]),
        last_ends in any::<bool>(),
        section in "[abc]",
        key in "[kl]|[a-z=]{1,5}",
        value in prop::option::of("[a-z=, \\[\\]é]{0,8}"),
    ) {
        let mut text = lines.join(endings);
        if last_ends {
            text.push_str(endings);
        }
        let value = value.as_deref().map(str::trim);
        prop_assume!(ini::check(&section, &key, value.unwrap_or("")).is_ok());
        let edited = ini::edit(&text, &section, &key, value);
        let mut expected = ini::settings(&text);
        file::apply(&mut expected, &section, &key, value.map(str::to_owned));
        if value.is_none() {
            prop_assert!(ini::settings(&edited).get(&section).is_none_or(|s| !s.contains_key(&key)));
        }
        prop_assert_eq!(ini::settings(&edited), expected);
        for comment in text.lines().filter(|l| l.starts_with([';', '#'])) {
            prop_assert!(edited.lines().any(|l| l == comment), "lost {:?}", comment);
        }
    }
}

fn world() -> (Runtime, Env, TempDir) {
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let env = tokio_host::env(runtime.handle().clone());
    (runtime, env, TempDir::new().unwrap())
}

fn sources(dir: &Path) -> Sources {
    Sources { fallback: Some(dir.join("local.ini")), ..Sources::default() }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn later_files_win_and_local_d_comes_last() {
    let (runtime, env, dir) = world();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let first = write("first.ini", "[a]\nx = 1\ny = 1\nz = 1\nw = 1\n");
    let second = write("second.ini", "[a]\ny = 2\nz = 2\nw = \n");
    let last = write("local.d/20.ini", "[a]\nz = 3\n");
    write("local.d/10.ini", "[a]\nz = 0\n");
    write("local.d/readme.txt", "[a]\nz = no\n");
    let overrides = vec![Setting::parse("b/c = d=e").unwrap()];
    let sources = Sources { files: vec![first, second], fallback: None, overrides };
    let config = runtime.block_on(Config::load(&env, sources)).unwrap();
    assert_eq!(config.written_file(), Some(last));
    let got = ["x", "y", "z", "w"].map(|key| config.get("a", key));
    assert_eq!(got, [Some("1".into()), Some("2".into()), Some("3".into()), None]);
    assert_eq!(config.get("b", "c").as_deref(), Some("d=e"));
}

#[test]
fn a_missing_or_unreadable_file_is_told() {
    let (runtime, env, dir) = world();
    let load =
        |path: PathBuf| runtime.block_on(Config::load(&env, Sources { files: vec![path], ..Sources::default() }));
    let missing = load(dir.path().join("none.ini")).unwrap_err();
    assert!(missing.to_string().contains("none.ini: "), "{missing}");
    let binary = dir.path().join("binary.ini");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    assert_eq!(load(binary.clone()).unwrap_err(), ConfigError::NotText(binary));
}

#[test]
fn changes_answer_the_old_value_and_survive_a_reload_only_when_persisted() {
    let (runtime, env, dir) = world();
    let file = dir.path().join("local.ini");
    runtime.block_on(async {
        let config = Config::load(&env, sources(dir.path())).await.unwrap();
        let versions = config.watch();
        assert_eq!(config.set(("zz", "kept"), "  one ", true).await, Ok(None));
        assert_eq!(config.set(("zz", "kept"), "two", true).await, Ok(Some("one".into())));
        assert_eq!(config.set(("zz", "gone"), "x", false).await, Ok(None));
        assert!(versions.has_changed().unwrap());
        assert_eq!(config.get("zz", "gone").as_deref(), Some("x"));
        config.reload().await.unwrap();
        assert_eq!(config.get("zz", "gone"), None);
        assert_eq!(config.get("zz", "kept").as_deref(), Some("two"));
        assert_eq!(read(&file), "[zz]\nkept = two\n");
        assert_eq!(config.delete(("zz", "kept"), true).await, Ok(Some("two".into())));
        assert_eq!(config.delete(("zz", "kept"), true).await, Ok(None));
        assert!(config.section("zz").is_empty());
        assert_eq!(read(&file), "[zz]\n");
        assert_eq!(config.set(("z]", "k"), "v", true).await, Err(ConfigError::InvalidSection));
    });
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn deleting_what_an_earlier_file_sets_lasts() {
    let (runtime, env, dir) = world();
    let (first, last) = (dir.path().join("a.ini"), dir.path().join("b.ini"));
    std::fs::write(&first, "[s]\nk = 1\n").unwrap();
    std::fs::write(&last, "; mine\n").unwrap();
    let sources = Sources { files: vec![first.clone(), last.clone()], ..Sources::default() };
    runtime.block_on(async {
        let config = Config::load(&env, sources).await.unwrap();
        assert_eq!(config.delete(("s", "k"), true).await, Ok(Some("1".into())));
        config.reload().await.unwrap();
        assert_eq!(config.get("s", "k"), None);
    });
    assert_eq!((read(&first).as_str(), read(&last).as_str()), ("[s]\nk = 1\n", "; mine\n\n[s]\nk = \n"));
}

#[test]
fn edits_by_hand_survive_a_change_by_request() {
    let (runtime, env, dir) = world();
    let file = dir.path().join("local.ini");
    runtime.block_on(async {
        let config = Config::load(&env, sources(dir.path())).await.unwrap();
        std::fs::write(&file, "; by hand\n[a]\nx = 1\n").unwrap();
        config.set(("a", "y"), "2", true).await.unwrap();
        assert_eq!(read(&file), "; by hand\n[a]\nx = 1\ny = 2\n");
    });
}

#[test]
fn a_file_that_cannot_be_written_changes_nothing() {
    let (runtime, env, dir) = world();
    runtime.block_on(async {
        let nowhere = Sources { fallback: Some(dir.path().join("no/such/local.ini")), ..Sources::default() };
        let config = Config::load(&env, nowhere).await.unwrap();
        assert!(matches!(config.set(("a", "b"), "c", true).await, Err(ConfigError::Io { .. })));
        assert_eq!(config.get("a", "b"), None);
    });
}

#[test]
fn typed_values_fall_back_to_their_default() {
    let (_runtime, env, _dir) = world();
    let set = ["a/n=12", "a/inf=infinity", "a/bad=1x", "a/t=true", "a/f=false", "a/l= x, y ,,z"];
    let config = Config::in_memory(&env, set.iter().map(|s| Setting::parse(s).unwrap()).collect());
    let numbers = ["n", "inf", "bad", "none"].map(|key| config.u64("a", key, 7));
    assert_eq!(numbers, [12, u64::MAX, 7, 7]);
    let flags = ["t", "f", "bad"].map(|key| config.bool("a", key, true));
    assert_eq!(flags, [true, false, true]);
    assert_eq!(config.list("a", "l", ""), ["x", "y", "z"]);
    assert_eq!(config.list("a", "none", "sha256, sha"), ["sha256", "sha"]);
}

#[test]
fn a_rewrite_opens_no_secret_to_others_and_keeps_symbolic_links() {
    use std::os::unix::fs::PermissionsExt;
    let (runtime, env, dir) = world();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let [real, link, fresh] = ["real.ini", "link.ini", "fresh.ini"].map(|name| dir.path().join(name));
    std::fs::write(&real, "[admins]\nboss = secret\n").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.ini", &link).unwrap();
    // What a crash left of an earlier rewrite.
    std::fs::write(dir.path().join("real.ini.new"), "left").unwrap();
    runtime.block_on(async {
        for (file, expected) in [(&link, 0o640), (&fresh, 0o600)] {
            let sources = Sources { fallback: Some(file.clone()), ..Sources::default() };
            let config = Config::load(&env, sources).await.unwrap();
            config.set(("admins", "second"), "hidden", true).await.unwrap();
            assert_eq!(mode(file), expected, "{}", file.display());
            assert!(std::fs::read_to_string(file).unwrap().contains("second = hidden"));
        }
    });
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains("boss = secret"));
}

#[test]
fn a_file_that_a_process_renamed_before_it_was_killed_survives_a_power_loss_once_it_was_read() {
    let (runtime, dir) = (Builder::new_multi_thread().enable_all().build().unwrap(), tempfile::tempdir().unwrap());
    let env = tokio_host::env(runtime.handle().clone());
    let (disk, file) = (Forgetful::over(env.disk()), dir.path().join("local.ini"));
    std::fs::write(dir.path().join("local.ini.new"), "[couchdb]\nuuid = 7\n").unwrap();
    disk.rename(&dir.path().join("local.ini.new"), &file).unwrap();
    let sources = Sources { files: vec![file.clone()], ..Sources::default() };
    let config = runtime.block_on(Config::load(&with_disk(&env, Arc::<Forgetful>::clone(&disk)), sources)).unwrap();
    assert_eq!(config.get("couchdb", "uuid").as_deref(), Some("7"));
    disk.lose_power().unwrap();
    assert!(file.exists());
}
