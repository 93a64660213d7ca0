//! What one thread measured. Equal times that follow each other are recorded at once: replies that come together.

use super::connection::Pending;
use super::outcome::{EXAMPLES_MAX, Interval, SERIES_MAX, Wrong};
use crate::latency::Histogram;

/// Counts of one entry of the mix.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) requests: u64,
    pub(super) keys: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) refused: u64,
    pub(super) failures: u64,
    pub(super) response: Histogram,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// Done; a read with the hits that its pending request counted.
    Done,
    /// The key is not there.
    Missed,
    /// Refused by the command's own rules.
    Refused,
    /// Refused with an error.
    Failed,
}

#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) rows: Vec<Row>,
    pub(super) service: Histogram,
    pub(super) slip: Histogram,
    pub(super) wrong: Wrong,
    pub(super) series: Vec<Interval>,
    pub(super) requests: u64,
    pub(super) failures: u64,
    /// What is intended before this does not count; nanoseconds since the phase began.
    pub(super) counts_from: u64,
    /// When the last reply that counts came.
    pub(super) last: u64,
    is_open: bool,
    interval_ns: u64,
    interval_ends: u64,
    interval: Interval,
    run: Run,
}

/// Requests with the same times.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    row: usize,
    response: u64,
    service: u64,
    count: u64,
}

impl Sheet {
    pub(super) fn new(rows: usize, is_open: bool, counts_from: u64, interval_ns: u64) -> Self {
        Sheet {
            rows: (0..rows).map(|_| Row::default()).collect(),
            service: Histogram::new(),
            slip: Histogram::new(),
            wrong: Wrong::default(),
            series: Vec::new(),
            requests: 0,
            failures: 0,
            counts_from,
            last: counts_from,
            is_open,
            interval_ns,
            interval_ends: counts_from + interval_ns,
            interval: Interval::default(),
            run: Run::default(),
        }
    }

    /// Counts a request whose reply came `now`.
    #[inline]
    pub(super) fn add(&mut self, pending: &Pending, end: End, now: u64) {
        let (Some(entry), true) = (pending.entry, pending.intended >= self.counts_from) else { return };
        let number = usize::from(entry);
        let (response, service) = (now.saturating_sub(pending.intended), now.saturating_sub(pending.sent));
        let is_same = self.run.row == number && self.run.response == response && self.run.service == service;
        if !is_same || now >= self.interval_ends {
            self.settle();
            if now >= self.interval_ends {
                self.next_interval(now);
            }
            self.run = Run { row: number, response, service, count: 0 };
        }
        self.run.count += 1;
        self.requests += 1;
        self.last = now;
        let row = &mut self.rows[number];
        row.requests += 1;
        row.keys += u64::from(pending.keys);
        match end {
            End::Done if pending.operation.reads() => {
                row.hits += u64::from(pending.hits);
                row.misses += u64::from(pending.keys - pending.hits);
            }
            End::Done => row.hits += 1,
            End::Missed => row.misses += 1,
            End::Refused => row.refused += 1,
            End::Failed => {
                row.failures += 1;
                self.failures += 1;
                self.interval.failures += 1;
            }
        }
    }

    /// Records what was held back.
    fn settle(&mut self) {
        let Run { row, response, service, count } = self.run;
        if count == 0 {
            return;
        }
        self.rows[row].response.record(response, count);
        self.interval.response.record(response, count);
        self.interval.requests += count;
        if self.is_open {
            self.service.record(service, count);
            self.slip.record(response.saturating_sub(service), count);
        }
        self.run.count = 0;
    }

    /// Ends intervals up to the one that `now` lies in. The last that there may be takes all the rest.
    fn next_interval(&mut self, now: u64) {
        while now >= self.interval_ends {
            if self.series.len() + 1 >= SERIES_MAX {
                self.interval_ends = u64::MAX;
                return;
            }
            let mut ended = std::mem::take(&mut self.interval);
            ended.at = (self.interval_ends - self.interval_ns - self.counts_from) as f64 / 1e9;
            self.series.push(ended);
            self.interval_ends += self.interval_ns;
        }
    }

    /// Ends the last interval.
    pub(super) fn finish(&mut self) {
        self.settle();
        if self.interval.requests > 0 {
            let mut ended = std::mem::take(&mut self.interval);
            ended.at = (self.series.len() as u64 * self.interval_ns) as f64 / 1e9;
            self.series.push(ended);
        }
    }

    /// Keeps a few wrong replies in words.
    pub(super) fn example(&mut self, text: impl FnOnce() -> String) {
        if self.wrong.examples.len() < EXAMPLES_MAX {
            self.wrong.examples.push(text());
        }
    }
}
