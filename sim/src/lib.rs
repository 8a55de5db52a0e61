//! The seeded world of settee: nodes on simulated clocks, networks and disks, all of it a function of one seed.
//!
//! Everything stands behind the feature `sim`; without it this crate is empty, so that a plain build never sees madsim.

#[cfg(all(feature = "sim", not(madsim)))]
compile_error!(
    "settee-sim needs `--cfg madsim`. It is set in .cargo/config.toml, which the environment variable RUSTFLAGS \
     overrides: unset RUSTFLAGS or add `--cfg madsim` to it."
);

#[cfg(all(feature = "sim", madsim))]
pub mod apart;
#[cfg(all(feature = "sim", madsim))]
pub mod bisect;
#[cfg(all(feature = "sim", madsim))]
pub mod bugs;
#[cfg(all(feature = "sim", madsim))]
pub mod cases;
#[cfg(all(feature = "sim", madsim))]
pub mod client;
#[cfg(all(feature = "sim", madsim))]
mod faults;
#[cfg(all(feature = "sim", madsim))]
pub mod history;
#[cfg(all(feature = "sim", madsim))]
mod keeper;
#[cfg(all(feature = "sim", madsim))]
pub mod linear;
#[cfg(all(feature = "sim", madsim))]
mod liveness;
#[cfg(all(feature = "sim", madsim))]
pub mod log;
#[cfg(all(feature = "sim", madsim))]
pub mod model;
#[cfg(all(feature = "sim", madsim))]
pub mod outer;
#[cfg(all(feature = "sim", madsim))]
pub mod pace;
#[cfg(all(feature = "sim", madsim))]
mod peace;
#[cfg(all(feature = "sim", madsim))]
mod place;
#[cfg(all(feature = "sim", madsim))]
pub mod plan;
#[cfg(all(feature = "sim", madsim))]
pub mod planted;
#[cfg(all(feature = "sim", madsim))]
pub mod private;
#[cfg(all(feature = "sim", madsim))]
pub mod proxy;
#[cfg(all(feature = "sim", madsim))]
pub mod run;
#[cfg(all(feature = "sim", madsim))]
pub mod shrink;
#[cfg(all(feature = "sim", madsim))]
pub mod sights;
#[cfg(all(feature = "sim", madsim))]
pub mod timeline;
#[cfg(all(feature = "sim", madsim))]
pub mod tokens;
#[cfg(all(feature = "sim", madsim))]
pub mod totals;
#[cfg(all(feature = "sim", madsim))]
pub mod twice;
#[cfg(all(feature = "sim", madsim))]
pub mod weeks;
#[cfg(all(feature = "sim", madsim))]
pub mod workload;
#[cfg(all(feature = "sim", madsim))]
pub mod world;
