//! How far a copy to or from a bucket is.

use std::future::Future;
use std::pin::pin;

use crate::limits;
use crate::observe::told::{Rate, Tell, Told, megabytes, time_left};
use crate::world::sync::Mutex;
use crate::world::{Env, Instant, lock};

/// Counts that are shared by all that runs at once.
#[derive(Default)]
pub(super) struct Progress(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    objects: u64,
    bytes: u64,
    /// What is to be copied, where that is known.
    of: Option<(u64, u64)>,
    rate: Rate,
}

impl Progress {
    /// So many objects and bytes are to be copied.
    pub(super) fn begin(&self, objects: u64, bytes: u64) {
        lock(&self.0).of = Some((objects, bytes));
    }

    /// So many more bytes were copied.
    pub(super) fn moved(&self, bytes: u64) {
        lock(&self.0).bytes += bytes;
    }

    /// An object more is done.
    pub(super) fn done(&self) {
        lock(&self.0).objects += 1;
    }

    /// Begins again with other objects.
    pub(super) fn restart(&self) {
        *lock(&self.0) = Counts::default();
    }

    fn line(&self, now: Instant) -> String {
        let mut counts = lock(&self.0);
        let (objects, bytes) = (counts.objects, counts.bytes);
        let rate = counts.rate.look(now, bytes);
        let (of_objects, rest) = match counts.of {
            Some((objects, all)) => {
                let left = time_left(all.saturating_sub(bytes), rate);
                (format!(" of {objects}"), format!(" of {}, {}/s, {left}", megabytes(all), megabytes(rate as u64)))
            }
            None => (String::new(), format!(", {}/s", megabytes(rate as u64))),
        };
        format!("{objects}{of_objects} objects, {}{rest}", megabytes(bytes))
    }

    /// Does the work, and tells now and then how far it is; `what`: of what it is told.
    pub(super) async fn told<T>(&self, env: &Env, tell: Tell<'_>, what: &str, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = env.sleep(limits::BUCKET_PROGRESS) => {
                    tell(Told::Progress(format!("{what}: {}", self.line(env.now()))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn how_far_it_is() {
        let at = |s| Instant(Duration::from_secs(s));
        let progress = Progress::default();
        assert_eq!(progress.line(at(0)), "0 objects, 0.0 MB, 0.0 MB/s");
        progress.begin(3, 8_000_000);
        progress.moved(2_000_000);
        progress.done();
        assert_eq!(progress.line(at(1)), "1 of 3 objects, 2.0 MB of 8.0 MB, 2.0 MB/s, 0:00:03 left");
    }
}
