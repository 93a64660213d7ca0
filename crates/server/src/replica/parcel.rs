//! Records on their way to the replica, with what it can't look up itself.
//!
//! A record names items by where they lie at the server. So behind a batch of records comes an entry for each: which
//! versions were found and published, and for a put the bytes that were received, as they lie in the item now.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | bytes of the batch |
//! | … | the batch, as [`guard::BatchWriter`] writes it |
//! | per record | an entry |
//!
//! An entry: sequence number (8), [flags](IS_READABLE) (1), for the version found and the one published, if they are
//! there, cas id (8) and birth (8), CRC of the value found if it is large (4), CRC of the value published (4), bytes
//! received (4), and these.

use guard::{BATCH_BYTES_MAX, Batch, BatchWriter, Record, Seq};
use store::{Told, Version};

use super::wire::{BadFrame, Fields};

/// What a record points to can be read; without, nothing can be said about the execution.
const IS_READABLE: u8 = 1;
const HAS_FOUND: u8 = 2;
const HAS_PUBLISHED: u8 = 4;

/// Bytes of records in one parcel at most; they are small, and the replica should begin with some before all are there.
const BATCH_BYTES: usize = 64 << 10;

/// Bytes of received values after which a parcel is full. A single value may be larger.
const RECEIVED_BYTES: usize = 256 << 10;

/// What the replica is told of one record's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts<'b> {
    pub(crate) told: Told,
    /// What a put received.
    pub(crate) received: &'b [u8],
}

/// Records are put into it to be sent.
#[derive(Debug)]
pub(crate) struct Packer {
    batch: BatchWriter,
    entries: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> Self {
        Packer { batch: BatchWriter::new(BATCH_BYTES.min(BATCH_BYTES_MAX)), entries: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.records() == 0
    }

    /// Whether what is in it should be sent before more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= RECEIVED_BYTES
    }

    /// Adds a record, with no facts if what it points to is gone. False if it has to be sent first.
    pub(crate) fn push(&mut self, record: &Record, facts: Option<&Facts<'_>>) -> bool {
        if self.is_full() || !self.batch.push(record) {
            return false;
        }
        let out = &mut self.entries;
        out.extend_from_slice(&record.seq().to_le_bytes());
        let Some(Facts { told, received }) = facts else {
            out.push(0);
            return true;
        };
        let found = if told.found.is_some() { HAS_FOUND } else { 0 };
        let published = if told.published.is_some() { HAS_PUBLISHED } else { 0 };
        out.push(IS_READABLE | found | published);
        for version in [told.found, told.published].into_iter().flatten() {
            out.extend_from_slice(&version.cas.to_le_bytes());
            out.extend_from_slice(&version.birth.to_le_bytes());
        }
        out.extend_from_slice(&told.found_crc.to_le_bytes());
        out.extend_from_slice(&told.value_crc.to_le_bytes());
        // Values are shorter than the largest item, which is shorter than 4 GiB.
        out.extend_from_slice(&(received.len() as u32).to_le_bytes());
        out.extend_from_slice(received);
        true
    }

    /// Appends what is in it as a frame's body, and begins anew.
    pub(crate) fn pack(&mut self, body: &mut Vec<u8>) {
        let batch = self.batch.bytes();
        body.extend_from_slice(&(batch.len() as u32).to_le_bytes());
        body.extend_from_slice(batch);
        body.extend_from_slice(&self.entries);
        self.batch.clear();
        self.entries.clear();
        if self.entries.capacity() > 2 * RECEIVED_BYTES {
            self.entries = Vec::new();
        }
    }
}

/// Records that arrived.
#[derive(Debug)]
pub(crate) struct Parcel {
    bytes: Vec<u8>,
    batch: std::ops::Range<usize>,
    /// One for each record, in order.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    seq: Seq,
    /// None if what the record points to is gone.
    told: Option<Told>,
    received: std::ops::Range<usize>,
}

impl Parcel {
    /// Takes a frame's body apart. The records themselves are looked at when their turn comes.
    pub(crate) fn unpack(body: &[u8]) -> Result<Self, BadFrame> {
        let mut fields = Fields::new(body);
        let batch_bytes = fields.u32()? as usize;
        let bytes = fields.bytes(batch_bytes)?;
        let batch = match Batch::decode(bytes) {
            Ok(Some((batch, length))) if length == batch_bytes => batch,
            _ => return Err(BadFrame::Content),
        };
        let count = batch.records() as usize;
        // Each entry has nine bytes at least, so that no more room is made than bytes have come.
        if count == 0 || count > body.len() / 9 {
            return Err(BadFrame::Content);
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = Entry::read(&mut fields, body.len())?;
            if entries.last().is_some_and(|last| last.seq >= entry.seq) {
                return Err(BadFrame::Content);
            }
            entries.push(entry);
        }
        fields.end()?;
        Ok(Parcel { bytes: body.to_vec(), batch: 4..4 + batch_bytes, entries })
    }

    /// The records.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let decoded = Batch::decode(&self.bytes[self.batch.clone()]);
        decoded.ok().flatten().expect("it was decoded when it was unpacked, and has not changed").0
    }

    /// The first and the last record's number.
    pub(crate) fn seqs(&self) -> (Seq, Seq) {
        let first = self.entries.first().map_or(0, |entry| entry.seq);
        (first, self.entries.last().map_or(0, |entry| entry.seq))
    }

    /// What is told of a record; none if what it points to is gone.
    pub(crate) fn facts(&self, seq: Seq) -> Option<Facts<'_>> {
        let place = self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        let entry = &self.entries[place];
        Some(Facts { told: entry.told?, received: &self.bytes[entry.received.clone()] })
    }

    /// Memory it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}

impl Entry {
    fn read(fields: &mut Fields<'_>, body_bytes: usize) -> Result<Self, BadFrame> {
        let (seq, flags) = (fields.u64()?, fields.u8()?);
        if flags == 0 {
            return Ok(Entry { seq, told: None, received: 0..0 });
        }
        if flags & IS_READABLE == 0 || flags & !(IS_READABLE | HAS_FOUND | HAS_PUBLISHED) != 0 {
            return Err(BadFrame::Content);
        }
        let mut version = |flag: u8| -> Result<Option<Version>, BadFrame> {
            if flags & flag == 0 {
                return Ok(None);
            }
            Ok(Some(Version { cas: fields.u64()?, birth: fields.u64()? }))
        };
        let (found, published) = (version(HAS_FOUND)?, version(HAS_PUBLISHED)?);
        let told = Told { found, published, found_crc: fields.u32()?, value_crc: fields.u32()? };
        let length = fields.u32()? as usize;
        fields.bytes(length)?;
        let end = body_bytes - fields.left();
        Ok(Entry { seq, told: Some(told), received: end - length..end })
    }
}

#[cfg(test)]
mod tests {
    use guard::{Append, Description, Draft, Next, Reader, ring};

    use super::*;

    fn records(count: usize) -> Vec<Record> {
        let (mut writer, mut reader): (_, Reader) = ring(4096);
        for number in 0..count {
            let description = Description { words: [number as u64; 5], payload: b"get key\r\n" };
            let append = writer.append(&Draft { description, ..Draft::default() });
            assert_ne!(append, Append::Dropped);
        }
        writer.commit();
        let next = || {
            let mut record = Record::default();
            (reader.next(&mut record) == Next::Record).then_some(record)
        };
        std::iter::from_fn(next).collect()
    }

    fn told(number: u64) -> Told {
        let version = |cas| Version { cas, birth: cas + 1 };
        Told {
            found: number.is_multiple_of(2).then(|| version(number)),
            published: number.is_multiple_of(3).then(|| version(number + 7)),
            found_crc: number as u32,
            value_crc: 9,
        }
    }

    fn packed() -> Vec<u8> {
        let mut packer = Packer::new();
        assert!(packer.is_empty());
        for record in &records(12) {
            let received = vec![record.seq() as u8; record.seq() as usize * 3];
            let facts = Facts { told: told(record.seq()), received: &received };
            assert!(packer.push(record, (record.seq() % 5 != 0).then_some(&facts)));
        }
        let mut body = Vec::new();
        packer.pack(&mut body);
        assert!(packer.is_empty());
        body
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let parcel = Parcel::unpack(&packed()).expect("a parcel");
        assert_eq!((parcel.batch().records(), parcel.seqs()), (12, (1, 12)));
        for seq in 1..=12 {
            let facts = parcel.facts(seq);
            let received = vec![seq as u8; seq as usize * 3];
            let expected = Facts { told: told(seq), received: &received };
            assert_eq!(facts, (seq % 5 != 0).then_some(expected), "{seq}");
        }
        assert_eq!(parcel.facts(13), None);
    }

    #[test]
    fn a_parcel_has_limits_and_takes_every_record() {
        let record = &records(1)[0];
        let large = vec![0; 3 * RECEIVED_BYTES];
        let mut packer = Packer::new();
        let facts = Facts { told: told(1), received: &large };
        assert!(packer.push(record, Some(&facts)));
        assert!(packer.is_full());
        assert!(!packer.push(record, None));
        packer.pack(&mut Vec::new());
        let fitted = (0..).take_while(|_| packer.push(record, None)).count();
        assert!((BATCH_BYTES / 200..BATCH_BYTES / 60).contains(&fitted), "{fitted}");
    }

    #[test]
    fn cut_and_changed_parcels_do_no_harm() {
        let body = packed();
        for length in 0..body.len() {
            assert!(Parcel::unpack(&body[..length]).is_err(), "{length}");
        }
        for at in 0..body.len() {
            for mask in [1, 128, 255] {
                let mut body = body.clone();
                body[at] ^= mask;
                // A frame has a checksum; this is about not going astray without one.
                if let Ok(parcel) = Parcel::unpack(&body) {
                    parcel.batch();
                    let _ = (1..=12).filter_map(|seq| parcel.facts(seq)).count();
                }
            }
        }
    }
}
