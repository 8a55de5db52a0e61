//! What handlers may reach: the world, the configuration, the databases.

use crate::auth::Authenticator;
use crate::config::Config;
use crate::world::Env;

/// The node as handlers see it. One per node, shared by all requests.
pub struct Context {
    /// The world.
    pub env: Env,
    /// The settings, as they are now.
    pub config: Config,
    /// Checks credentials.
    pub authenticator: Authenticator,
    /// The node's name, `name@host`.
    pub node_name: String,
}
