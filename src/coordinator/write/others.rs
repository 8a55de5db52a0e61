//! Replication of what one replica of a range has decided to the others.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::quorum::Tally;
use crate::coordinator::write::Writer;
use crate::shard::ShardError;

/// The answers of the other replicas, in the order in which they come.
pub(in crate::coordinator) struct Others<T> {
    /// How many cannot be asked now, so that nothing was sent to them.
    pub away: usize,
    answers: mpsc::UnboundedReceiver<(bool, Result<T, ShardError>)>,
    own_waits: bool,
}

impl<T> Others<T> {
    /// Counts the answers until it is certain what they come to; `see` is told each of those that did it.
    pub async fn count(mut self, tally: &mut Tally, mut see: impl FnMut(T)) {
        (0..self.away).for_each(|_| tally.refused());
        while let Some(answer) = self.next(tally.waits()).await {
            match answer {
                Ok(answer) => {
                    see(answer);
                    tally.done();
                }
                Err(ShardError::Indeterminate(_)) => tally.silent(),
                Err(_) => tally.refused(),
            }
        }
    }

    /// The next answer. `None` when all have answered, and when no more `wanted` are: then only this node's own replica
    /// is still waited for. What a client reads here next is read from that one (`Replicas::readers`), and is to have
    /// what the client was told is written.
    pub async fn next(&mut self, wanted: bool) -> Option<Result<T, ShardError>> {
        if !wanted && !self.own_waits {
            return None;
        }
        let (own, answer) = self.answers.recv().await?;
        self.own_waits &= !own;
        Some(answer)
    }
}

impl Writer<'_> {
    /// Runs an operation on all replicas of a range but that of the node `but`, in tasks that end whether or not a
    /// client waits for them. A replica that is out of reach, or whose answer is not `whole`, is noted as lagging. So
    /// is this node's if it is gone by now, because what the others do holds without it.
    pub(in crate::coordinator) async fn on_others<T, F>(
        self,
        (layout, range): (&Layout, usize),
        but: Option<&Arc<str>>,
        op: impl Fn(RangeReplica) -> F,
        whole: fn(&T) -> bool,
    ) -> Others<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ShardError>> + Send + 'static,
    {
        let (tell, answers) = mpsc::unbounded_channel();
        let mut others = Others { away: 0, answers, own_waits: false };
        for node in layout.writers(range, &self.context.node).into_iter().filter(|node| Some(node) != but) {
            let replica = match self.context.rank(&node) {
                Some(_) => self.replicas().replica_on(layout, range, &node).await.ok(),
                None => None,
            };
            let Some(replica) = replica else {
                others.away += 1;
                self.context.lagging(&self.name);
                continue;
            };
            let own = node == self.context.node;
            others.own_waits |= own;
            let (doing, tell) = (op(replica), tell.clone());
            let (context, name) = (Arc::clone(&self.context), self.name.clone());
            self.context.env.spawn(async move {
                let answer = doing.await;
                if !answer.as_ref().is_ok_and(whole) {
                    context.lagging(&name);
                }
                // Nobody listens any more once enough replicas have answered.
                let _ = tell.send((own, answer));
            });
        }
        others
    }
}
