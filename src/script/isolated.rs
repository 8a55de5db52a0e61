//! JavaScript in a process of its own (`[settee] script_isolation = process`): both ends of the pipe.
//!
//! The node starts its own program as `settee script-host` for each runtime that a worker keeps. Such a process has the
//! limits of a runtime of the node and one more on its memory; it is killed when it does not answer in time. A crash of
//! the process fails the call that caused it; the next call starts another process.
//!
//! The node sends lines of JSON arrays of texts, first `[design document]`, then calls `[what, a, b, c, milliseconds]`.
//! The first byte of a line that comes back is its kind: [`ANSWER`], [`REFUSED`] or [`LOGGED`].

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::sandbox::{Sandbox, read};
use super::{ScriptError, log_line};
use crate::document::json::{self, Value, write_string};
use crate::limits;
use crate::world::{Env, Process};

/// The command of the program that makes it such a process.
pub const COMMAND: &str = "script-host";

/// What `driver.js` says, as JSON.
const ANSWER: u8 = b'=';
/// A [`ScriptError`] as JSON.
const REFUSED: u8 = b'!';
/// A line that a function logged; the answer is still to come.
const LOGGED: u8 = b'#';

/// The node's end. Killed when it is dropped.
pub(super) struct Isolated {
    process: Box<dyn Process>,
    env: Env,
    /// Whether it must not be used again: it was cut off, or ended.
    pub broken: bool,
}

fn failed(error: &io::Error) -> ScriptError {
    match error.kind() {
        io::ErrorKind::TimedOut => ScriptError::Timeout,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            ScriptError::Engine { reason: "the process of the function ended".to_owned() }
        }
        _ => ScriptError::Engine { reason: format!("the process of the function: {error}") },
    }
}

fn line(texts: &[&str]) -> Vec<u8> {
    let mut out = b"[".to_vec();
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(text, &mut out);
    }
    out.push(b']');
    out
}

impl Isolated {
    /// Starts a process with a design document, given as JSON text.
    pub fn start(env: &Env, design: &str) -> Result<Isolated, ScriptError> {
        let command = |program| vec![program, COMMAND.to_owned()];
        let process = env.host().own_program().and_then(|program| env.host().process(&command(program)));
        let mut own = Isolated { process: process.map_err(|e| failed(&e))?, env: env.clone(), broken: false };
        own.ask(&line(&[design]), limits::SCRIPT_HOST_START)?;
        Ok(own)
    }

    /// As the call of a sandbox.
    pub fn call(&mut self, what: &str, [a, b, c]: [&str; 3], limit: Duration) -> Result<Value, ScriptError> {
        let ms = limit.as_millis().to_string();
        // The process minds the limit itself, but for single operations that cannot be interrupted.
        let done = self.ask(&line(&[what, a, b, c, &ms]), limit.saturating_add(limits::SCRIPT_GRACE));
        self.broken = matches!(&done, Err(ScriptError::Timeout | ScriptError::Engine { .. }));
        done
    }

    fn ask(&mut self, line: &[u8], limit: Duration) -> Result<Value, ScriptError> {
        let begun = self.env.now();
        self.process.send(line).map_err(|e| failed(&e))?;
        loop {
            let left = limit.saturating_sub(self.env.now().since(begun));
            let said = self.process.receive(left).map_err(|e| failed(&e))?;
            match said.split_first() {
                Some((&ANSWER, text)) => return read(text),
                Some((&REFUSED, text)) => {
                    let unreadable = |_| ScriptError::Engine { reason: "the process of the function erred".to_owned() };
                    return Err(serde_json::from_slice(text).unwrap_or_else(unreadable));
                }
                Some((&LOGGED, text)) => super::log(&String::from_utf8_lossy(text)),
                _ => return Err(failed(&io::ErrorKind::InvalidData.into())),
            }
        }
    }
}

/// The process's end: answers the calls that come by `input` until that ends.
///
/// # Errors
/// When it cannot be read or written, and for what no node sends.
pub fn serve_calls(env: &Env, input: impl BufRead, output: impl Write + Send + 'static) -> io::Result<()> {
    let output = Arc::new(Mutex::new(output));
    let say = |mark: u8, text: &[u8]| {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(&[&[mark], text, b"\n"].concat()).and_then(|()| output.flush())
    };
    let logged = {
        let output = Arc::clone(&output);
        move |text: &str| {
            // Lines of a log do not end the line that they stand in.
            let text = log_line(text).replace('\n', " ");
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            // When nobody reads any more, the process ends with its next answer.
            let _ = output.write_all(&[&[LOGGED], text.as_bytes(), b"\n"].concat());
        }
    };
    let mut logged = Some(logged);
    let mut sandbox = None;
    for asked in input.split(b'\n') {
        let texts = texts(&asked?)?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let answer = match (texts.as_slice(), &mut sandbox, logged.take()) {
            ([design], None, Some(logged)) => Sandbox::new(env, design, logged).map(|made| {
                sandbox = Some(made);
                "{}".to_owned()
            }),
            ([what, a, b, c, ms], Some(sandbox), None) => {
                let limit = Duration::from_millis(ms.parse().map_err(io::Error::other)?);
                sandbox.ask(what, [a, b, c], limit)
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        match answer {
            Ok(text) => say(ANSWER, text.as_bytes())?,
            Err(error) => say(REFUSED, &serde_json::to_vec(&error).map_err(io::Error::other)?)?,
        }
    }
    Ok(())
}

/// The texts of a line.
fn texts(line: &[u8]) -> io::Result<Vec<String>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let value = json::parse(line).map_err(|_| invalid())?;
    let items = value.as_array().ok_or_else(invalid)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(invalid)).collect()
}
