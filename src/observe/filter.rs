//! Which log lines are written: a level for all modules (`log/level`), and other levels for single ones
//! (`log/levels`).

use tracing_subscriber::filter::{LevelFilter, Targets};

use super::LogOptions;

/// The levels that these options ask for.
pub(super) fn configured(options: &LogOptions) -> Targets {
    let all = Targets::new().with_default(level(&options.level));
    pairs(&options.levels)
        .fold(all, |all, (module, name)| all.with_target(target(module), level(name)))
}

/// `storage=debug, http=warn`: modules and their levels. What is not of this form the configuration refuses.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').filter_map(|pair| pair.split_once('=')).map(|(module, level)| (module.trim(), level.trim()))
}

/// Where a module's lines come from. Lines about requests have a target of their own.
fn target(module: &str) -> String {
    match module {
        "request" | "slow_request" => module.to_owned(),
        module => format!("settee::{module}"),
    }
}

/// CouchDB's level names; an unknown one counts as `info`.
fn level(name: &str) -> LevelFilter {
    match name {
        "debug" => LevelFilter::DEBUG,
        "warning" | "warn" => LevelFilter::WARN,
        "error" | "err" | "critical" | "crit" | "alert" | "emergency" | "emerg" => LevelFilter::ERROR,
        "none" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn level_names_are_those_of_couchdb() {
        let expected = [
            ("debug", LevelFilter::DEBUG),
            ("info", LevelFilter::INFO),
            ("notice", LevelFilter::INFO),
            ("warning", LevelFilter::WARN),
            ("critical", LevelFilter::ERROR),
            ("none", LevelFilter::OFF),
            ("loud", LevelFilter::INFO),
        ];
        for (name, filter) in expected {
            assert_eq!(level(name), filter, "{name}");
        }
    }

    #[test]
    fn a_module_may_have_a_level_of_its_own() {
        let all = Targets::new().with_default(LevelFilter::WARN);
        let filter = pairs("storage = debug,request=info")
            .fold(all, |all, (module, name)| all.with_target(target(module), level(name)));
        assert!(filter.would_enable("settee::storage::flush", &Level::DEBUG));
        assert!(filter.would_enable("request", &Level::INFO) && !filter.would_enable("request", &Level::DEBUG));
        assert!(
            filter.would_enable("settee::http", &Level::WARN) && !filter.would_enable("settee::http", &Level::INFO)
        );
    }
}
