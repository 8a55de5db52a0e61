//! Engines that run the functions of one design document: a QuickJS runtime, in this process or in one of its own, or a
//! program that speaks the line protocol.

use std::sync::Arc;
use std::time::Duration;

use super::external::External;
use super::isolated::Isolated;
use super::sandbox::Sandbox;
use super::{Program, ScriptError};
use crate::document::json::Value;
use crate::limits;
use crate::world::Env;

/// Where functions run.
#[derive(Clone)]
pub(super) enum Place {
    /// On a worker's own thread.
    Worker,
    /// In a process of this program.
    Process,
    /// In the program that this command starts: another language (`[query_servers]`).
    Program(Arc<[String]>),
}

impl Place {
    /// How long one function may keep a worker whose time limit this is, in all.
    pub fn patience(&self, limit: Duration) -> Duration {
        limit.saturating_add(match self {
            Place::Worker => limits::SCRIPT_GRACE,
            // These are killed when they do not answer; they may have to start first.
            Place::Process | Place::Program(_) => limits::SCRIPT_GRACE * 2 + limits::SCRIPT_HOST_START,
        })
    }
}

/// See the module head. Used by one worker at a time.
pub(super) enum Engine {
    Own(Sandbox),
    Isolated(Isolated),
    Other(External),
}

impl Engine {
    /// A fresh one.
    pub fn new(env: &Env, program: &Program, place: &Place) -> Result<Engine, ScriptError> {
        match place {
            Place::Program(command) => External::start(env, command, program).map(Engine::Other),
            Place::Process | Place::Worker => Engine::javascript(env, program.text(), place),
        }
    }

    /// A fresh one for a design document's JSON text.
    pub fn javascript(env: &Env, design: &str, place: &Place) -> Result<Engine, ScriptError> {
        match place {
            Place::Process => Isolated::start(env, design).map(Engine::Isolated),
            _ => Sandbox::new(env, design, super::log).map(Engine::Own),
        }
    }

    /// Asks for `what` with up to three texts; see `driver.js`.
    pub fn call(&mut self, what: &str, texts: [&str; 3], limit: Duration) -> Result<Value, ScriptError> {
        match self {
            Engine::Own(sandbox) => sandbox.call(what, texts, limit),
            Engine::Isolated(process) => process.call(what, texts, limit),
            Engine::Other(external) => external.call(what, texts, limit),
        }
    }

    /// Whether it must not be used again.
    pub fn is_broken(&self) -> bool {
        match self {
            Engine::Own(sandbox) => sandbox.broken,
            Engine::Isolated(process) => process.broken,
            Engine::Other(external) => external.broken,
        }
    }
}
