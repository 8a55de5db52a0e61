//! Cryptography of the simulated world: that of rustls with ring, but for what draws random numbers.
//!
//! ring asks the operating system for the randoms of a handshake and for the keys of an exchange, so that a simulated
//! run would differ from its repetition. Here both come from the world's seeded numbers; the exchange is ECDH on P-256.
//! What is left of ring draws nothing, as long as certificates have Ed25519 keys: such signatures are functions of key
//! and message. Only builds with the feature `sim` have this, and only hosts that say so use it ([`Host::is_seeded`]).
//!
//! [`Host::is_seeded`]: crate::world::Host::is_seeded

use std::fmt;
use std::sync::Arc;

use p256::elliptic_curve::point::AffineCoordinates;
use p256::{PublicKey, SecretKey};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup, ring,
};
use rustls::{Error, NamedGroup, PeerMisbehaved};

use crate::world::sync::Mutex;
use crate::world::{Env, lock};

/// The cryptography of one user of TLS, whose random numbers go on from a number of `env`. What rustls wants to have
/// for as long as the process runs is leaked: some hundred bytes for each user.
pub(super) fn provider(env: &Env) -> Arc<CryptoProvider> {
    let random: &'static Seeded = Box::leak(Box::new(Seeded(Mutex::new(ChaCha20Rng::from_seed(env.random_bytes())))));
    let exchange: &'static Exchange = Box::leak(Box::new(Exchange(random)));
    let mut provider = ring::default_provider();
    provider.secure_random = random;
    provider.kx_groups = vec![exchange];
    Arc::new(provider)
}

/// Random numbers that repeat with the seed.
struct Seeded(Mutex<ChaCha20Rng>);

impl fmt::Debug for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeded")
    }
}

impl SecureRandom for Seeded {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        lock(&self.0).fill_bytes(buffer);
        Ok(())
    }
}

/// ECDH on P-256 with keys of those numbers.
#[derive(Debug)]
struct Exchange(&'static Seeded);

impl SupportedKxGroup for Exchange {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        loop {
            let mut bytes = [0; 32];
            self.0.fill(&mut bytes)?;
            // One in 4 billion is no key.
            if let Ok(own) = SecretKey::from_slice(&bytes) {
                let public = own.public_key().to_sec1_bytes();
                return Ok(Box::new(Started { own, public }));
            }
        }
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

/// An exchange that waits for the other side's key.
struct Started {
    own: SecretKey,
    public: Box<[u8]>,
}

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer = PublicKey::from_sec1_bytes(peer).map_err(|_| PeerMisbehaved::InvalidKeyShare)?;
        let point = peer.to_projective() * *self.own.to_nonzero_scalar();
        Ok(SharedSecret::from(point.to_affine().x().as_slice()))
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;
    use rustls::crypto::SupportedKxGroup;

    use super::{Exchange, Seeded};
    use crate::world::sync::Mutex;

    #[test]
    fn both_sides_have_one_secret_and_a_seed_gives_it_again() {
        let made = |seed: u8| {
            let random: &'static Seeded = Box::leak(Box::new(Seeded(Mutex::new(ChaCha20Rng::from_seed([seed; 32])))));
            let (one, other) = (Exchange(random).start().unwrap(), Exchange(random).start().unwrap());
            let (of_one, of_other) = (one.pub_key().to_vec(), other.pub_key().to_vec());
            assert_ne!(of_one, of_other);
            let secret = one.complete(&of_other).unwrap().secret_bytes().to_vec();
            assert_eq!(other.complete(&of_one).unwrap().secret_bytes(), secret);
            secret
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
        let started = Exchange(Box::leak(Box::new(Seeded(Mutex::new(ChaCha20Rng::from_seed([3; 32])))))).start();
        assert!(started.unwrap().complete(&[4; 65]).is_err(), "no point of the curve");
    }
}
