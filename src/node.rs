//! One node: all layers put together over an [`Env`](crate::world::Env). Used by `main` and by the simulator alike.
