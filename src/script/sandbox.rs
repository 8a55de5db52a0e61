//! One JavaScript runtime with the functions of one design document.
//!
//! Assumes that a [`Sandbox`] is used by one worker at a time. Promises that a call ends within its time (but for
//! single built-in operations, which cannot be interrupted: the memory limit bounds those), that it takes no more than
//! the memory and stack limits, and that it reaches neither network, files nor the real clock.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rquickjs::context::intrinsic;
use rquickjs::{CatchResultExt, Context, Ctx, Function, Object, Runtime};

use super::{ScriptError, reader};
use crate::document::json::{self, Value};
use crate::limits;
use crate::world::{Budget, Env};

/// What functions may use: no typed arrays, no weak references, no clock of its own.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::Promise,
);

const DRIVER: &str = include_str!("driver.js");

/// A runtime that holds a design document.
pub(super) struct Sandbox {
    context: Context,
    env: Env,
    stop: Arc<Stop>,
    /// Whether it must not be used again: a call was cut off within it.
    pub broken: bool,
}

/// What the interrupt handler asks.
#[derive(Default)]
struct Stop {
    budget: Mutex<Option<Budget>>,
    stopped: AtomicBool,
}

impl Stop {
    fn asked(&self) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let over = budget.as_mut().is_some_and(|over| over());
        if over {
            self.stopped.store(true, Ordering::Relaxed);
        }
        over
    }

    fn begin(&self, budget: Option<Budget>) {
        self.stopped.store(false, Ordering::Relaxed);
        *self.budget.lock().unwrap_or_else(PoisonError::into_inner) = budget;
    }
}

impl Sandbox {
    /// A fresh runtime; `design` is the design document's JSON text, `log` takes the lines that functions log.
    pub fn new(env: &Env, design: &str, log: impl Fn(&str) + Send + 'static) -> Result<Sandbox, ScriptError> {
        let failed = |error: rquickjs::Error| ScriptError::Engine { reason: error.to_string() };
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(limits::SCRIPT_MEMORY_BYTES);
        runtime.set_max_stack_size(limits::SCRIPT_JS_STACK_BYTES);
        let stop = Arc::new(Stop::default());
        let asked = Arc::clone(&stop);
        runtime.set_interrupt_handler(Some(Box::new(move || asked.asked())));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(failed)?;
        let installed = context.with(|ctx| install(&ctx, env, design, log).catch(&ctx).map_err(|e| e.to_string()));
        installed.map_err(engine)?;
        Ok(Sandbox { context, env: env.clone(), stop, broken: false })
    }

    /// Asks the driver for `what` with up to three texts; see `driver.js`.
    pub fn call(&mut self, what: &str, texts: [&str; 3], limit: Duration) -> Result<Value, ScriptError> {
        let text = self.ask(what, texts, limit)?;
        read(text.as_bytes()).inspect_err(|error| self.broken |= matches!(error, ScriptError::Engine { .. }))
    }

    /// As [`Sandbox::call`]; the answer is for [`read`].
    pub fn ask(&mut self, what: &str, texts: [&str; 3], limit: Duration) -> Result<String, ScriptError> {
        self.stop.begin(Some(self.env.budget(limit)));
        let [a, b, c] = texts;
        let answer = self.context.with(|ctx| {
            let driver = ctx.globals().get::<_, Function<'_>>("__settee");
            let answer = driver.and_then(|driver| driver.call::<_, String>((what, a, b, c)));
            answer.catch(&ctx).map_err(|error| error.to_string())
        });
        let stopped = self.stop.stopped.load(Ordering::Relaxed);
        self.stop.begin(None);
        self.broken = stopped || answer.is_err();
        match answer {
            _ if stopped => Err(ScriptError::Timeout),
            Err(reason) => Err(engine(reason)),
            Ok(text) => Ok(text),
        }
    }
}

fn engine(reason: String) -> ScriptError {
    ScriptError::Engine { reason }
}

fn install(ctx: &Ctx<'_>, env: &Env, design: &str, log: impl Fn(&str) + Send + 'static) -> rquickjs::Result<()> {
    let host = Object::new(ctx.clone())?;
    let (clock, dice) = (env.clone(), env.clone());
    host.set("now", Function::new(ctx.clone(), move || clock.wall().as_millis() as f64)?)?;
    // 53 random bits: all that a number between 0 and 1 holds.
    host.set("random", Function::new(ctx.clone(), move || (dice.random_u64() >> 11) as f64 / (1_u64 << 53) as f64)?)?;
    host.set("log", Function::new(ctx.clone(), move |text: String| log(&text))?)?;
    host.set("onlyReads", Function::new(ctx.clone(), |source: String| reader::only_reads(&source))?)?;
    let driver: Function<'_> = ctx.eval(DRIVER)?;
    driver.call::<_, ()>((host, design))
}

/// The driver's answer, or what it says went wrong.
pub(super) fn read(text: &[u8]) -> Result<Value, ScriptError> {
    let text = well_formed(text);
    let value = json::parse(&text).map_err(|_| engine("the script's answer is no JSON".to_owned()))?;
    let Some(members) = value.as_object() else { return Err(engine("the script gave no answer".to_owned())) };
    if let Some(reason) = members.get("compilation") {
        return Err(ScriptError::Compilation { reason: reason.as_str().unwrap_or_default().to_owned() });
    }
    if let Some([error, reason]) = members.get("thrown").and_then(Value::as_array) {
        let error = error.as_str().unwrap_or("unknown_error").to_owned();
        if error == "InternalError" {
            let reason = reason.as_str().filter(|reason| !reason.is_empty());
            return Err(engine(reason.unwrap_or("out of memory").to_owned()));
        }
        return Err(ScriptError::Thrown { error, reason: reason.clone() });
    }
    if members.contains("exhausted") {
        return Err(engine("null was thrown, or there was no memory for an error".to_owned()));
    }
    Ok(value)
}

/// Replaces the escapes of lone surrogates, which are no text, by U+FFFD. Whole pairs are never escaped in what
/// `JSON.stringify` writes.
fn well_formed(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let escape = &rest[at..];
        let lone = matches!(escape, [b'\\', b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', _, _, ..]);
        let taken = if lone { 6 } else { escape.len().min(2) };
        if lone {
            out.extend_from_slice("\u{FFFD}".as_bytes());
        } else {
            out.extend_from_slice(&escape[..taken]);
        }
        rest = &escape[taken..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::well_formed;

    #[test]
    fn lone_surrogates_become_the_replacement_character() {
        let fixed = |text: &str| String::from_utf8(well_formed(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(fixed(r#"["a\ud800b","\uDFFF"]"#), "[\"a\u{FFFD}b\",\"\u{FFFD}\"]");
        assert_eq!(fixed(r#"["\\ud800","\u0001","\n","x"]"#), r#"["\\ud800","\u0001","\n","x"]"#);
    }
}
