//! What Linux tells of this process under `/proc/self`; zeros elsewhere.

use std::fs;

use crate::world::Usage;

/// Reads what there is.
pub(super) fn of_this_process() -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let open_files = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    Usage {
        memory_bytes: number(&status, "VmRSS:") * 1024,
        memory_peak_bytes: number(&status, "VmHWM:") * 1024,
        open_files,
        threads: number(&status, "Threads:"),
        context_switches: number(&status, "voluntary_ctxt_switches:") + number(&status, "nonvoluntary_ctxt_switches:"),
        read_bytes: number(&io, "rchar:"),
        written_bytes: number(&io, "wchar:"),
    }
}

/// The number of the line that begins with `name`.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_name() {
        let text = "Threads:\t7\nVmRSS:\t  120 kB\nvoluntary_ctxt_switches:\t3\n";
        assert_eq!([number(text, "VmRSS:"), number(text, "Threads:"), number(text, "None:")], [120, 7, 0]);
        assert_eq!(number(text, "voluntary_ctxt_switches:"), 3);
    }
}
