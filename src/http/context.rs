//! What handlers may reach: the world, the configuration, the databases.

use crate::world::Env;

/// The node as handlers see it. One per node, shared by all requests.
#[derive(Debug)]
pub struct Context {
    /// The world.
    pub env: Env,
    /// The node's name, `name@host`.
    pub node_name: String,
}

/// Who asks: a name with roles, or nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserCtx {
    /// The user's name; `None` for an anonymous request.
    pub name: Option<String>,
    /// The user's roles; `_admin` marks a server admin.
    pub roles: Vec<String>,
}
