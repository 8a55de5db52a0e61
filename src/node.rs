//! One node: all layers put together over an [`Env`]. Used by `main` and by the simulator alike.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::auth::Authenticator;
use crate::config::Config;
use crate::limits;
use crate::world::{Env, Listener};

/// A running node.
pub struct Node {
    address: SocketAddr,
    _listener: Box<dyn Listener>,
}

/// What kept a node from starting: one line for its operator.
#[derive(Debug)]
pub enum StartError {
    /// `chttpd/bind_address` or `chttpd/port` makes no sense.
    Address(String),
    /// The address cannot be listened on.
    Listen(SocketAddr, std::io::Error),
    /// The data directory cannot be used.
    Data(PathBuf, String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Address(reason) => f.write_str(reason),
            StartError::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            StartError::Data(dir, reason) => write!(f, "data directory {}: {reason}", dir.display()),
        }
    }
}

impl std::error::Error for StartError {}

impl Node {
    /// Opens what is in `data_dir`, listens, and serves from then on.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(env: &Env, config: &Config, data_dir: &Path) -> Result<Node, StartError> {
        let _ = data_dir;
        let at = listen_address(config)?;
        let listener = env.host().listen(at).await.map_err(|e| StartError::Listen(at, e))?;
        let address = listener.local_addr().map_err(|e| StartError::Listen(at, e))?;
        let _authenticator = Authenticator::new(env, config);
        Ok(Node { address, _listener: listener })
    }

    /// Where it listens, with the real port when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests, finishes those in progress, and returns.
    pub async fn stop(&self) {}
}

/// This node's name: `settee/node`.
pub fn name(config: &Config) -> String {
    config.text("settee", "node", limits::NODE_NAME)
}

/// `chttpd/bind_address` (`any` is every address) and `chttpd/port`.
fn listen_address(config: &Config) -> Result<SocketAddr, StartError> {
    let text = config.text("chttpd", "bind_address", limits::BIND_ADDRESS);
    let ip = match text.as_str() {
        "any" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        text => text
            .trim_matches(['[', ']'])
            .parse()
            .map_err(|_| StartError::Address(format!("chttpd/bind_address `{text}` is no IP address")))?,
    };
    let port = config.text("chttpd", "port", limits::PORT);
    let port = port.parse().map_err(|_| StartError::Address(format!("chttpd/port `{port}` is no port number")))?;
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use crate::world::tokio_host;

    #[test]
    fn the_address_comes_from_the_configuration() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let address = |settings: &[&str]| {
            let overrides = settings.iter().map(|s| Setting::parse(s).unwrap()).collect();
            listen_address(&Config::in_memory(&env, overrides)).map(|a| a.to_string()).map_err(|e| e.to_string())
        };
        assert_eq!(address(&[]), Ok("127.0.0.1:5984".to_owned()));
        assert_eq!(address(&["chttpd/bind_address=any", "chttpd/port=0"]), Ok("0.0.0.0:0".to_owned()));
        assert_eq!(address(&["chttpd/bind_address=::1"]), Ok("[::1]:5984".to_owned()));
        assert_eq!(address(&["chttpd/port=x"]), Err("chttpd/port `x` is no port number".to_owned()));
        assert_eq!(
            address(&["chttpd/bind_address=here"]),
            Err("chttpd/bind_address `here` is no IP address".to_owned())
        );
    }
}
