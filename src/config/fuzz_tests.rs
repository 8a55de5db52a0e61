//! Fuzz target of INI files. See `world::fuzz`.

use super::Setting;
use super::ini;
use super::schema;
use crate::world::fuzz::Fuzz;

#[test]
fn fuzz_ini_files_keep_what_is_written_into_them_and_all_else() {
    let files = [
        "; head\n[chttpd]\nport = 5984\nbind_address = 127.0.0.1\n\n[admins]\nadm = -pbkdf2-x,y,10\n",
        "a=b\n[x]\r\nlong = one\n two\n\tthree\n;c\nempty =\n[x]\nlong = again\n",
        "[section with space]\nkey with space = value ; no comment\n= nameless\nno equals sign\n[unclosed\n",
    ];
    Fuzz::new("ini", files)
        .words(&["[", "]", "=", "\n", "\r\n", ";", " ", "\n ", "[chttpd]\n", "port", "\u{feff}"])
        .run(|text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            let before = ini::settings(text);
            let mut edited = ini::edit(text, "chttpd", "fuzzed", Some("value"));
            let mut after = ini::settings(&edited);
            assert_eq!(
                after.get("chttpd").and_then(|section| section.get("fuzzed")).map(String::as_str),
                Some("value")
            );
            edited = ini::edit(&edited, "chttpd", "fuzzed", None);
            after = ini::settings(&edited);
            assert!(after.get("chttpd").is_none_or(|section| !section.contains_key("fuzzed")), "it was removed");
            for (section, keys) in &before {
                for (key, value) in
                    keys.iter().filter(|(key, _)| (section.as_str(), key.as_str()) != ("chttpd", "fuzzed"))
                {
                    assert_eq!(after.get(section).and_then(|now| now.get(key)), Some(value), "{section}/{key}");
                }
            }
            Setting::parse(text);
            schema::refusal("chttpd", "port", text);
        });
}
