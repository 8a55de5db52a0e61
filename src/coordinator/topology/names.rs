//! Rules of database names (CouchDB documentation, 'Databases'; as CouchDB 3.5 was measured).

use crate::coordinator::topology::error::DatabaseError;
use crate::limits;

/// The databases that the server itself uses; the only names that begin with an underscore.
pub const SYSTEM: [&str; 4] = ["_global_changes", "_metadata", "_replicator", "_users"];

/// Whether `name` is one of [`SYSTEM`], or such a one below a path of its own: `people/_users`.
pub fn is_system(name: &str) -> bool {
    SYSTEM.contains(&name.rsplit('/').next().unwrap_or(name))
}

/// Whether `name` may be created: `^[a-z][a-z0-9_$()+/-]*$`, or a system name, of at most 238 characters.
///
/// The length is decided first, since it has an error of its own.
pub fn check(name: &str) -> Result<(), DatabaseError> {
    if name.chars().count() > limits::DATABASE_NAME_MAX {
        return Err(DatabaseError::NameTooLong { name: name.to_owned() });
    }
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
    let goes_on_well = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_$()+/-".contains(&b));
    if SYSTEM.contains(&name) || (starts_well && goes_on_well) {
        Ok(())
    } else {
        Err(DatabaseError::IllegalName { name: name.to_owned() })
    }
}

/// Reads a placement rule `zone:n[,zone:n...]` into its zones with their numbers of replicas.
pub fn parse_placement(text: &str) -> Result<Vec<(String, u32)>, DatabaseError> {
    let read = |part: &str| {
        let (zone, replicas) = part.split_once(':')?;
        let replicas: u32 = replicas.parse().ok().filter(|n| *n > 0)?;
        (!zone.is_empty()).then(|| (zone.to_owned(), replicas))
    };
    text.split(',').map(read).collect::<Option<Vec<_>>>().ok_or(DatabaseError::IllegalPlacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_pattern() {
        for good in ["a", "abc0_$()+-/x", "_users", "_replicator", "_global_changes", "_metadata"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1digit", "_private", "with space", "dot.dot", "café", "a?b", "-dash", "/slash", "a!"] {
            assert!(matches!(check(bad), Err(DatabaseError::IllegalName { .. })), "{bad}");
        }
    }

    #[test]
    fn the_longest_name_has_238_characters() {
        assert!(check(&"a".repeat(238)).is_ok());
        assert!(matches!(check(&"a".repeat(239)), Err(DatabaseError::NameTooLong { .. })));
    }

    #[test]
    fn placements_are_zones_with_counts() {
        assert_eq!(parse_placement("east:2,west:1").unwrap(), [("east".to_owned(), 2), ("west".to_owned(), 1)]);
        for bad in ["", "moon", "az:x", "az:0", ":1", "a:1,"] {
            assert!(parse_placement(bad).is_err(), "{bad}");
        }
    }
}
