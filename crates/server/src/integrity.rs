//! Looking after what lies in memory: how fast it is checked, what is said of damage, and what is counted.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use guard::Checksum;
use store::{Damage, Part, Store};

use crate::counters::{Counter, Counters};
use crate::coverage;
use crate::reaction::{Case, Ration, Reaction, Report};
use crate::settings::Settings;
use crate::shared::Shared;

/// How long one stretch of checking may take. Maintenance is locked meanwhile.
const STRETCH_MAX: Duration = Duration::from_millis(1);

/// Buckets in one stretch at most: what the default rate allows in the janitor's longest rest, and some more.
const STRETCH_BUCKETS_MAX: usize = 2048;

/// Checking an item of up to a KiB takes less than half of this, even if nothing of it is cached. What takes longer
/// counts as several items, so that the rate also limits the time: the default rate to 4 % of a core.
const ITEM_TIME: Duration = Duration::from_micros(2);

/// After a stretch the scrubber rests so many times as long as it took: a tenth of a core at most, whatever rate was
/// asked for.
const REST_FACTOR: u32 = 9;

/// Seconds of checking that can be made up for; what was put off for longer is not done in a burst.
const CREDIT_SECONDS_MAX: f64 = 0.1;

/// Lines about damage in one second at most; the rest is counted in one more line.
const LINES_PER_SECOND_MAX: u32 = 10;

/// Bytes of a key that a line shows at most: all that a key has when its length is not damaged.
const KEY_BYTES_SHOWN_MAX: usize = 250;

/// What was checked and found since the start. Only the janitor writes.
#[derive(Debug, Default)]
pub(crate) struct Integrity {
    items: Counter,
    passes: Counter,
    pass_us: AtomicU64,
    damaged: Counter,
    went_with_it: Counter,
    /// Disagreements that came from the store and were passed on.
    passed_on: Counter,
}

/// What `stats integrity` shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// The setting.
    pub(crate) items_per_second: u32,
    /// Items checked by the scrubber.
    pub(crate) items: u64,
    /// Walks over the whole store that were completed.
    pub(crate) passes: u64,
    /// How long the last of them took; zero before there was one.
    pub(crate) pass: Duration,
    /// Items that the scrubber found damaged.
    pub(crate) damaged: u64,
    /// Items that were forgotten because they lay in the segment of one whose length was damaged.
    pub(crate) went_with_it: u64,
    /// Damage of any kind that the store noticed, whoever looked.
    pub(crate) crc_mismatches: u64,
    /// Checked values that were verified, and that were refused; none if no flag announces them.
    pub(crate) checked: Option<[u64; 2]>,
    /// How often each command is executed.
    pub(crate) executions: u8,
    /// Commands whose executions did not agree.
    pub(crate) disagreements: u64,
    /// What was made of that.
    pub(crate) reaction: Report,
    /// How much was executed again elsewhere.
    pub(crate) validation: coverage::Report,
}

impl Integrity {
    /// The numbers now.
    pub(crate) fn findings(&self, shared: &Shared) -> Findings {
        let Shared { settings, reaction, store, .. } = shared;
        let stats = store.stats();
        // Read first: what was passed on is counted there before it is counted here.
        let passed_on = self.passed_on.read();
        let reaction = reaction.report();
        Findings {
            items_per_second: settings.scrub_items_per_second,
            items: self.items.read(),
            passes: self.passes.read(),
            pass: Duration::from_micros(self.pass_us.load(Relaxed)),
            damaged: self.damaged.read(),
            went_with_it: self.went_with_it.read(),
            crc_mismatches: stats.crc_mismatches,
            checked: settings.checked_values.is_some().then(|| {
                let sum = |of: fn(&Counters) -> u64| shared.counters.iter().map(of).sum();
                [sum(|it| it.checked_verified.read()), sum(|it| it.checked_refused.read())]
            }),
            executions: settings.runs(),
            disagreements: stats.disagreements + reaction.disagreements().saturating_sub(passed_on),
            reaction,
            validation: coverage::Report::of(shared),
        }
    }
}

/// Classes of executions, as the store numbers them.
const STRATA: [&str; 4] = ["fetch", "put", "delete", "arith"];

/// Passes on what the store noticed since the last time: executions on one core that did not agree. As many as the store
/// keeps; further ones it has counted.
pub(crate) fn pass_on_disagreements(store: &Store, counts: &Integrity, reaction: &Reaction, now: u32) {
    for disagreement in store.take_disagreements() {
        let case = Case {
            disagreement,
            stratum: STRATA.get(usize::from(disagreement.stratum.0)).unwrap_or(&"other"),
            command: b"",
            keys: &[],
            item_found: None,
            item_new: None,
            checksum: Checksum::Unknown,
            now: now.into(),
        };
        reaction.contradicted(&case);
        counts.passed_on.up();
    }
    reaction.tick(Instant::now());
}

/// Checks items at the rate that was asked for, and tells what it finds.
pub(crate) struct Scrubber {
    /// Whether it waits while memory is short. Without eviction memory stays short, and it would wait for ever.
    waits: bool,
    pace: Pace,
    ration: Ration,
    /// When the pass that is under way began.
    pass_began: Option<Instant>,
}

impl Scrubber {
    pub(crate) fn new(settings: &Settings) -> Self {
        Scrubber {
            waits: settings.evict,
            pace: Pace::new(settings.scrub_items_per_second, Instant::now()),
            ration: Ration::new(LINES_PER_SECOND_MAX),
            pass_began: None,
        }
    }

    /// Does one stretch if it is due and memory is not short; how long until the next one, if it is due already.
    pub(crate) fn stretch(&mut self, store: &Store, counts: &Integrity) -> Option<Duration> {
        let began = Instant::now();
        let left_out = self.ration.settle(began);
        self.tell_left_out(left_out);
        let buckets = self.pace.due(began)?;
        if self.waits && store.is_pressed() {
            return None;
        }
        let pass_began = *self.pass_began.get_or_insert(began);
        let scrubbed = store.scrub(buckets);
        let ended = Instant::now();
        counts.items.add(scrubbed.items);
        for damage in &scrubbed.damages {
            counts.damaged.up();
            counts.went_with_it.add(damage.with_it);
            if self.ration.take(ended) {
                tell(format_args!("{}", Line(damage)));
            }
        }
        if scrubbed.is_complete {
            self.pass_began = None;
            let micros = ended.duration_since(pass_began).as_micros();
            counts.pass_us.store(u64::try_from(micros).unwrap_or(u64::MAX), Relaxed);
            counts.passes.up();
        }
        self.pace.done(buckets, scrubbed.items, began, ended)
    }

    /// Tells what is still untold, at the end.
    pub(crate) fn finish(self) {
        self.tell_left_out(self.ration.left_out());
    }

    fn tell_left_out(&self, count: u64) {
        if count > 0 {
            tell(format_args!("{count} more items damaged in memory; forgotten"));
        }
    }
}

/// One line on standard error. Whoever reads it may be gone, which is no reason to stop.
fn tell(text: fmt::Arguments<'_>) {
    let line = format!("veracache: integrity: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// When how much is to be checked.
struct Pace {
    items_per_second: f64,
    /// Items that time has passed for and that were not checked yet; negative when too many were.
    credit: f64,
    credited: Instant,
    not_before: Instant,
    /// Buckets that can be expected to take less than [`STRETCH_MAX`].
    buckets: usize,
}

impl Pace {
    fn new(items_per_second: u32, now: Instant) -> Self {
        // Of the items nothing is known yet, so it begins small.
        let items_per_second = f64::from(items_per_second);
        Pace { items_per_second, credit: 0.0, credited: now, not_before: now, buckets: 1 }
    }

    /// Buckets to be checked now.
    fn due(&mut self, now: Instant) -> Option<usize> {
        let passed = now.saturating_duration_since(self.credited).as_secs_f64();
        self.credited = now;
        let credit_max = (self.items_per_second * CREDIT_SECONDS_MAX).max(1.0);
        self.credit = (self.credit + passed * self.items_per_second).min(credit_max);
        (self.credit >= 1.0 && now >= self.not_before).then(|| self.buckets.min(self.credit as usize))
    }

    /// Notes what a stretch cost; how long until the next, if that is due already.
    fn done(&mut self, buckets: usize, items: u64, began: Instant, ended: Instant) -> Option<Duration> {
        let took = ended.saturating_duration_since(began);
        // Buckets with nothing in them cost time as well; else an empty store would be walked without end.
        let cost = items.max(buckets as u64) as f64;
        self.credit -= cost.max(took.as_secs_f64() / ITEM_TIME.as_secs_f64());
        self.not_before = ended + took * REST_FACTOR;
        if took > STRETCH_MAX {
            self.buckets = (buckets / 2).max(1);
        } else if took < STRETCH_MAX / 4 && buckets == self.buckets {
            self.buckets = (buckets * 2).min(STRETCH_BUCKETS_MAX);
        }
        (self.credit >= 1.0).then(|| took * REST_FACTOR)
    }
}

/// What is said of one damaged item. What is not known is a question mark, which no encoded key holds.
struct Line<'a>(&'a Damage);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { key, part, value_bytes, bit, core, with_it } = self.0;
        f.write_str("item damaged in memory: key=")?;
        match part {
            Part::Lengths => f.write_str("? part=lengths")?,
            Part::Content => write!(f, "{} part=content", Encoded(key))?,
            Part::Exptime => write!(f, "{} part=exptime", Encoded(key))?,
        }
        match bit {
            Some(bit) => write!(f, " bit={bit}")?,
            None => f.write_str(" bit=?")?,
        }
        match part {
            Part::Lengths => f.write_str(" value_bytes=?")?,
            Part::Content | Part::Exptime => write!(f, " value_bytes={value_bytes}")?,
        }
        write!(f, " core={core} with_it={with_it}; forgotten")
    }
}

/// A key, percent-encoded but for what RFC 3986 calls unreserved; cut short with a `*` when it is too long.
pub(crate) struct Encoded<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take(KEY_BYTES_SHOWN_MAX) {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    write!(f, "{}", char::from(*byte))?;
                }
                other => write!(f, "%{other:02X}")?,
            }
        }
        if self.0.len() > KEY_BYTES_SHOWN_MAX { f.write_str("*") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the pace for a while with buckets that hold so many items of such a cost, looked at every millisecond.
    /// Items checked, time spent, longest stretch after the first few.
    fn paced(rate: u32, items: u64, cost_us: u64, seconds: u64) -> (u64, Duration, Duration) {
        let start = Instant::now();
        let mut pace = Pace::new(rate, start);
        let (mut now, mut checked, mut spent, mut longest) = (start, 0, Duration::ZERO, Duration::ZERO);
        while now < start + Duration::from_secs(seconds) {
            if let Some(buckets) = pace.due(now) {
                let took = Duration::from_micros(buckets as u64 * cost_us);
                pace.done(buckets, buckets as u64 * items, now, now + took);
                now += took;
                checked += buckets as u64 * items;
                spent += took;
                longest = longest.max(took);
            }
            now += Duration::from_millis(1);
        }
        (checked, spent, longest)
    }

    #[test]
    fn items_are_checked_at_the_rate_asked_for() {
        for (rate, items, cost_us) in [(20_000, 6, 1), (100, 6, 1), (5, 8, 1), (1_000, 1, 2)] {
            let (checked, _, longest) = paced(rate, items, cost_us, 20);
            let expected = u64::from(rate) * 20;
            // At a low rate it may be one bucket ahead.
            let between = expected * 95 / 100..=expected * 102 / 100 + items;
            assert!(between.contains(&checked), "{rate}: {checked} of {expected}");
            assert!(longest <= 2 * STRETCH_MAX, "{rate}: {longest:?}");
        }
        assert_eq!(paced(0, 6, 1, 20).0, 0);
        // An empty store is not walked faster than that either.
        assert!(paced(20_000, 0, 1, 20).1 <= Duration::from_micros(20_000 * 20 * 102 / 100));
    }

    #[test]
    fn large_values_are_checked_more_rarely() {
        for (rate, spent_ms_max) in [(20_000, 820), (1_000_000, 2_100)] {
            let (checked, spent, longest) = paced(rate, 8, 800, 20);
            assert!(checked > 0);
            assert!(spent <= Duration::from_millis(spent_ms_max), "{rate}: {spent:?}");
            assert!(longest <= 2 * STRETCH_MAX, "{rate}: {longest:?}");
        }
    }

    #[test]
    fn what_was_put_off_is_not_done_in_a_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(1_000, start);
        pace.buckets = STRETCH_BUCKETS_MAX;
        assert_eq!(pace.due(start + Duration::from_secs(3_600)), Some(100));
    }

    #[test]
    fn what_a_line_says() {
        let damage = Damage {
            key: b"a b/%\n\xff-~".to_vec(),
            part: Part::Content,
            value_bytes: 5,
            bit: Some(39),
            core: 3,
            with_it: 0,
        };
        let unexplained = Damage { part: Part::Exptime, bit: None, ..damage.clone() };
        let lengths =
            Damage { key: Vec::new(), part: Part::Lengths, bit: None, with_it: 7, ..damage.clone() };
        for (damage, text) in [
            (
                &damage,
                "key=a%20b%2F%25%0A%FF-~ part=content bit=39 value_bytes=5 core=3 with_it=0; forgotten",
            ),
            (
                &unexplained,
                "key=a%20b%2F%25%0A%FF-~ part=exptime bit=? value_bytes=5 core=3 with_it=0; forgotten",
            ),
            (&lengths, "key=? part=lengths bit=? value_bytes=? core=3 with_it=7; forgotten"),
        ] {
            assert_eq!(Line(damage).to_string(), format!("item damaged in memory: {text}"));
        }
        assert_eq!(Encoded(&[b'k'; 250]).to_string(), "k".repeat(250));
        assert_eq!(Encoded(&[b'k'; 255]).to_string(), format!("{}*", "k".repeat(250)));
    }
}
