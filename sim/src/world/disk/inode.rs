//! The bytes of one file: what the process sees, what is certain to survive, and what lies between.

use super::super::dice::Dice;

/// What the drive writes whole or not at all.
pub(super) const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

/// A change that no sync has covered, and the length of the file after it.
#[derive(Clone, Debug)]
struct Pending {
    change: Change,
    len_after: usize,
}

/// Where a write really goes. What the process reads comes from the system's cache and is right until the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Right,
    Nowhere,
    At(usize),
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Power fails while the last write is on its way to the disk.
    tearing: bool,
}

/// How a power loss treats the unsynced changes of a file.
#[derive(Clone, Copy, Debug)]
enum Fate {
    LoseAll,
    KeepAll,
    /// All up to a point in the order; the change at that point is torn.
    Cut(usize),
    /// Each sector of each write alone, with this probability (in percent).
    Sectors(u64),
    /// All before a change, and so many sectors from the start of that one.
    Head(usize, usize),
}

/// What a power loss did to a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    pub(super) sectors_kept: u64,
    pub(super) sectors_lost: u64,
    /// Writes of which a part survived.
    pub(super) torn: u64,
}

impl Inode {
    pub(super) fn of(content: Vec<u8>) -> Self {
        Inode { durable: content.clone(), live: content, pending: Vec::new(), tearing: false }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    #[cfg(test)]
    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn is_clean(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let Ok(start) = usize::try_from(offset) else { return false };
        match start.checked_add(buffer.len()).and_then(|end| self.live.get(start..end)) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        put(&mut self.live, offset, data);
        let change = Change::Write { offset, data: data.to_vec() };
        self.pending.push(Pending { change, len_after: self.live.len() });
    }

    /// [`Inode::write`] on a disk that may put it elsewhere.
    pub(super) fn write_to(&mut self, offset: usize, data: &[u8], place: Place) {
        let at = match place {
            Place::Right => return self.write(offset, data),
            Place::Nowhere => None,
            Place::At(other) => Some(other),
        };
        put(&mut self.live, offset, data);
        let len_after = self.live.len();
        self.pending.push(Pending { change: Change::SetLen(len_after), len_after });
        if let Some(offset) = at {
            let room = len_after.saturating_sub(offset).min(data.len());
            let change = Change::Write { offset, data: data[..room].to_vec() };
            self.pending.push(Pending { change, len_after });
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.live.resize(len, 0);
        self.pending.push(Pending { change: Change::SetLen(len), len_after: len });
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        for pending in self.pending.drain(..) {
            match pending.change {
                Change::Write { offset, data } => put(&mut self.durable, offset, &data),
                Change::SetLen(len) => self.durable.resize(len, 0),
            }
        }
    }

    /// A failed sync marks the changes as clean without having written them: a later sync will not write them either.
    pub(super) fn fail_sync(&mut self) {
        self.pending.clear();
    }

    /// Flips one bit, in what is seen and in what is stored.
    pub(super) fn rot(&mut self, offset: usize, bit: u8) {
        for bytes in [&mut self.live, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// The next power loss finds the last unsynced write half done: it begins on the disk and does not end there.
    pub(super) fn tear(&mut self) {
        self.tearing = true;
    }

    /// What a tear leaves of the last write; `None` where that is within one sector.
    fn torn_head(&self, dice: &mut Dice) -> Option<Fate> {
        let index = self.pending.len().checked_sub(1)?;
        let Change::Write { offset, data } = &self.pending[index].change else { return None };
        let sectors = (offset + data.len()).div_ceil(SECTOR) - offset / SECTOR;
        (sectors > 1).then(|| Fate::Head(index, 1 + dice.below(sectors as u64 - 1) as usize))
    }

    /// Power is lost: of the unsynced changes some survive, by the rule that the dice choose for this file.
    pub(super) fn crash(&mut self, dice: &mut Dice) -> Loss {
        let mut loss = Loss::default();
        let torn = if std::mem::take(&mut self.tearing) { self.torn_head(dice) } else { None };
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            let count = pending.len();
            let fate = torn.unwrap_or_else(|| match dice.below(8) {
                0 => Fate::LoseAll,
                1 => Fate::KeepAll,
                2..=4 => Fate::Cut(dice.below(count as u64) as usize),
                _ => Fate::Sectors(10 + dice.below(81)),
            });
            // Sizes are metadata: they survive in order.
            let sized = match fate {
                Fate::LoseAll => 0,
                Fate::KeepAll | Fate::Head(..) => count,
                Fate::Cut(at) => at + dice.below(2) as usize,
                Fate::Sectors(_) => dice.below(count as u64 + 1) as usize,
            };
            let len = if sized == 0 { self.durable.len() } else { pending[sized - 1].len_after };
            for (index, pending) in pending.iter().enumerate() {
                self.settle(index, pending, fate, index < sized, dice, &mut loss);
            }
            self.durable.resize(len, 0);
        }
        self.live = self.durable.clone();
        loss
    }

    fn settle(&mut self, index: usize, pending: &Pending, fate: Fate, sized: bool, dice: &mut Dice, loss: &mut Loss) {
        let (offset, data) = match &pending.change {
            Change::SetLen(len) => {
                if sized {
                    self.durable.resize(*len, 0);
                }
                return;
            }
            Change::Write { offset, data } => (*offset, data),
        };
        let (mut kept, mut lost) = (0, 0);
        let mut start = 0;
        while start < data.len() {
            let end = data.len().min(start + SECTOR - (offset + start) % SECTOR);
            let keep = match fate {
                Fate::LoseAll => false,
                Fate::KeepAll => true,
                Fate::Cut(at) => index < at || (index == at && dice.below(2) == 0),
                Fate::Sectors(percent) => dice.below(100) < percent,
                Fate::Head(at, sectors) => index < at || (index == at && kept < sectors as u64),
            };
            if keep {
                put(&mut self.durable, offset + start, &data[start..end]);
                kept += 1;
            } else {
                lost += 1;
            }
            start = end;
        }
        loss.sectors_kept += kept;
        loss.sectors_lost += lost;
        loss.torn += u64::from(kept > 0 && lost > 0);
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_bytes_survive_whatever_the_dice_say() {
        for seed in 0..200 {
            let mut file = Inode::default();
            file.write(0, &[1; 2000]);
            file.sync();
            file.write(2000, &[2; 2000]);
            file.crash(&mut Dice::new(seed, "crash"));
            assert!(file.len() >= 2000, "the synced length survives");
            assert_eq!(&file.live()[..2000], &[1; 2000]);
            assert!(file.live()[2000..].iter().all(|b| *b == 2 || *b == 0));
            assert_eq!(file.live(), file.durable());
        }
    }

    #[test]
    fn a_write_within_a_sector_is_whole_or_absent_and_long_ones_tear() {
        let (mut torn, mut whole, mut lost) = (0, 0, 0);
        for seed in 0..200 {
            let mut file = Inode::of(vec![0; 4096]);
            file.write(0, &[7; 4096]);
            file.crash(&mut Dice::new(seed, "crash"));
            let kept = file.live().chunks(SECTOR).filter(|sector| sector[0] == 7).count();
            assert!(file.live().chunks(SECTOR).all(|s| s.iter().all(|b| *b == s[0])), "no tear within a sector");
            match kept {
                0 => lost += 1,
                8 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(torn > 20 && whole > 5 && lost > 5, "{torn} {whole} {lost}");
    }

    #[test]
    fn a_write_that_is_cut_begins_on_the_disk_and_does_not_end_there() {
        for seed in 0..50 {
            let mut file = Inode::of(vec![9; 100]);
            file.write(100, &[7; 2000]);
            file.tear();
            let loss = file.crash(&mut Dice::new(seed, "crash"));
            assert_eq!((file.len(), file.live()[100], file.live()[2099], loss.torn), (2100, 7, 0, 1));
        }
    }

    #[test]
    fn a_stray_write_is_read_back_until_the_power_fails() {
        let mut file = Inode::of(vec![0; 2048]);
        file.write_to(0, &[1; 512], Place::Nowhere);
        file.write_to(512, &[2; 512], Place::At(1536));
        assert_eq!((file.live()[0], file.live()[512], file.live()[1536]), (1, 2, 0));
        file.sync();
        file.crash(&mut Dice::new(1, "crash"));
        assert_eq!((file.live()[0], file.live()[512], file.live()[1536]), (0, 0, 2));
    }

    #[test]
    fn a_failed_sync_loses_for_good() {
        let mut file = Inode::of(vec![0; 10]);
        file.write(0, &[1; 10]);
        file.fail_sync();
        file.sync();
        assert_eq!(file.live(), [1; 10]);
        file.crash(&mut Dice::new(1, "crash"));
        assert_eq!(file.live(), [0; 10]);
    }
}
