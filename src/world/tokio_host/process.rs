//! A program of its own that answers lines with lines: one thread writes to it and one reads what it writes, so that
//! neither a program that does not read nor one that does not answer holds anybody else.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

use crate::limits;
use crate::world::Process;

/// Lines read ahead: log lines come before an answer.
const LINES_AHEAD: usize = 16;

/// Killed when it is dropped.
pub(super) struct OsProcess {
    child: Child,
    input: Sender<Vec<u8>>,
    lines: Receiver<io::Result<Vec<u8>>>,
}

impl OsProcess {
    /// Starts the program named first with the other words as its arguments; what it writes to its error stream goes to
    /// that of the node.
    pub(super) fn start(command: &[String]) -> io::Result<OsProcess> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (mut stdin, output) = (child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?, child.stdout.take());
        let (input, waiting) = channel::<Vec<u8>>();
        let write = move || {
            // Ends with the program or with its owner.
            while let Ok(line) = waiting.recv() {
                if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("query-input".to_owned()).spawn(write)?;
        let (sender, lines) = sync_channel(LINES_AHEAD);
        let mut output = BufReader::new(output.ok_or(io::ErrorKind::BrokenPipe)?);
        let read = move || {
            loop {
                let line = read_line(&mut output);
                let ended = line.is_err();
                if sender.send(line).is_err() || ended {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("query-server".to_owned()).spawn(read)?;
        Ok(OsProcess { child, input, lines })
    }
}

/// A line without its end; an error at the end of the stream and for a line beyond the limit.
fn read_line(output: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let most = limits::QUERY_SERVER_LINE_BYTES;
    output.by_ref().take(most as u64 + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') => Ok(line),
        Some(_) if line.len() >= most => Err(io::Error::other("a line is too long")),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Process for OsProcess {
    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.input.send([line, b"\n"].concat()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn receive(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        self.lines.recv_timeout(limit).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Err(io::ErrorKind::TimedOut.into()),
            RecvTimeoutError::Disconnected => Err(io::ErrorKind::UnexpectedEof.into()),
        })
    }
}

impl Drop for OsProcess {
    fn drop(&mut self) {
        // Fails only for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
