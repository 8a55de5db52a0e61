//! What runs the functions of one design document: a runtime of our own, or a program that speaks the line protocol.

use std::time::Duration;

use super::external::External;
use super::sandbox::Sandbox;
use super::{Program, ScriptError};
use crate::document::json::Value;
use crate::world::Env;

/// See the module head. Used by one worker at a time.
pub(super) enum Engine {
    /// JavaScript.
    Own(Sandbox),
    /// Another language (`[query_servers]`).
    Other(External),
}

impl Engine {
    /// A fresh one; `command` starts the program for languages that do not run here.
    pub fn new(env: &Env, program: &Program, command: Option<&[String]>) -> Result<Engine, ScriptError> {
        match command {
            None => Sandbox::new(env, program.text()).map(Engine::Own),
            Some(command) => External::start(env, command, program).map(Engine::Other),
        }
    }

    /// Asks for `what` with up to three texts; see `driver.js`.
    pub fn call(&mut self, what: &str, texts: [&str; 3], limit: Duration) -> Result<Value, ScriptError> {
        match self {
            Engine::Own(sandbox) => sandbox.call(what, texts, limit),
            Engine::Other(external) => external.call(what, texts, limit),
        }
    }

    /// Whether it must not be used again.
    pub fn is_broken(&self) -> bool {
        match self {
            Engine::Own(sandbox) => sandbox.broken,
            Engine::Other(external) => external.broken,
        }
    }
}
