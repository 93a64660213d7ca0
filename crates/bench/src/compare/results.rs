//! What a comparison found: every sample, and for each workload and quantity a ratio with its interval.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::compare::statistics::{Ratio, median};
use crate::record::Gate;
use crate::report::figures::{
    Bar, Bars, Cell, Column, Content, Estimate, Figure, Forest, Row, Shown, Stack, Stacks, Table,
};

/// One contender under one workload in one round.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Sample {
    /// Counted from 0.
    pub round: usize,
    /// Which it was in its round, counted from 0.
    pub turn: usize,
    /// By name.
    pub contender: String,
    /// By name.
    pub workload: String,
    /// Those that count.
    pub requests: u64,
    /// Of the measured time.
    pub seconds: f64,
    /// CPU seconds of all processes of the server: in their own code, and in the kernel for them.
    pub cpu_user: f64,
    /// See above.
    pub cpu_system: f64,
    /// CPU seconds of the generator.
    pub cpu_generator: f64,
    /// Resident memory of all processes of the server at the end.
    pub rss_bytes: u64,
    /// Microseconds from sending to answer.
    pub p50_us: f64,
    /// See above.
    pub p99_us: f64,
    /// What the generator says was the limit.
    pub limited_by: String,
    /// Those that are not met.
    pub unmet: Vec<Gate>,
}

/// What is compared, in the order of its worth on a machine that is shared.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// CPU seconds of all processes of the server, divided by requests: less is better.
    Cpu,
    /// Requests per second: more is better.
    Rate,
}

/// One ratio.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// By name.
    pub workload: String,
    /// The contender whose quantity is divided.
    pub contender: String,
    /// That by whose it is divided.
    pub base: String,
    /// What.
    pub quantity: Quantity,
    /// By how much, if there was any round with both.
    pub ratio: Option<Ratio>,
    /// What may be said of it.
    pub words: String,
}

/// The record's results.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Results {
    /// That were completed.
    pub rounds: usize,
    /// Of the estimate and its interval.
    pub method: String,
    /// The contender that others are divided by.
    pub base: String,
    /// Its name when it takes part once more, which shows the noise.
    pub again: Option<String>,
    /// Its name when it has more to do, which has to be noticed.
    pub slowed: Option<String>,
    /// Servers that could have taken part and are not installed.
    pub absent: Vec<String>,
    /// In the order of measuring.
    pub samples: Vec<Sample>,
    /// By workload, quantity and contender.
    pub comparisons: Vec<Comparison>,
    /// For reports.
    #[serde(flatten)]
    pub shown: Shown,
}

impl Sample {
    /// The value of a quantity: microseconds of CPU, or requests per second.
    pub fn value(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Cpu => (self.cpu_user + self.cpu_system) * 1e6 / self.requests as f64,
            Quantity::Rate => self.requests as f64 / self.seconds,
        }
    }
}

impl Quantity {
    /// Both.
    pub const ALL: [Quantity; 2] = [Quantity::Cpu, Quantity::Rate];

    /// As sentences name it.
    pub fn words(self) -> &'static str {
        match self {
            Quantity::Cpu => "server CPU per request",
            Quantity::Rate => "requests per second",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Quantity::Cpu => "us",
            Quantity::Rate => "op/s",
        }
    }
}

impl Results {
    /// Fills in comparisons, figures and verdict from the samples.
    pub fn conclude(&mut self) {
        self.comparisons.clear();
        for workload in self.workloads() {
            for quantity in Quantity::ALL {
                let others = self.contenders().into_iter().filter(|name| *name != self.base);
                let compared: Vec<Comparison> =
                    others.map(|name| self.compare(&workload, &name, quantity)).collect();
                self.comparisons.extend(compared);
            }
        }
        self.shown = Shown { verdict: self.verdict(), figures: self.figures() };
    }

    /// In order of appearance in the first round, which is random; so sorted, with the base first.
    pub fn contenders(&self) -> Vec<String> {
        let mut names: Vec<String> = self.samples.iter().map(|sample| sample.contender.clone()).collect();
        names.sort_by_key(|name| (*name != self.base, name.clone()));
        names.dedup();
        names
    }

    /// In the order they were measured in.
    pub fn workloads(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for sample in &self.samples {
            if !names.contains(&sample.workload) {
                names.push(sample.workload.clone());
            }
        }
        names
    }

    fn of<'a>(&'a self, workload: &'a str, contender: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |it| it.workload == workload && it.contender == contender)
    }

    fn values(&self, workload: &str, contender: &str, quantity: Quantity) -> Vec<f64> {
        self.of(workload, contender).map(|sample| sample.value(quantity)).collect()
    }

    fn compare(&self, workload: &str, contender: &str, quantity: Quantity) -> Comparison {
        let pairs: Vec<(f64, f64)> = self
            .of(workload, contender)
            .filter_map(|one| {
                let other = self.of(workload, &self.base).find(|other| other.round == one.round)?;
                Some((one.value(quantity), other.value(quantity)))
            })
            .collect();
        let ratio = Ratio::of(&pairs);
        let words = match &ratio {
            Some(ratio) => ratio.words(contender, &self.base, quantity.words()),
            None => format!("{contender} and {}: no round has both", self.base),
        };
        Comparison {
            workload: workload.to_string(),
            contender: contender.to_string(),
            base: self.base.clone(),
            quantity,
            ratio,
            words,
        }
    }

    fn comparison(&self, workload: &str, contender: &str, quantity: Quantity) -> Option<&Comparison> {
        self.comparisons
            .iter()
            .find(|it| it.workload == workload && it.contender == contender && it.quantity == quantity)
    }

    /// Ends of the interval of the base divided by itself.
    pub fn floor(&self, workload: &str, quantity: Quantity) -> Option<[f64; 2]> {
        self.comparison(workload, self.again.as_deref()?, quantity)?.ratio?.interval
    }

    /// Whether the slowdown was found in every workload, by the quantity that comes first; none if there was none.
    pub fn slowdown_is_found(&self) -> Option<bool> {
        let slowed = self.slowed.as_deref()?;
        let found = |workload: &String| {
            let ratio = self.comparison(workload, slowed, Quantity::Cpu)?.ratio?;
            Some(ratio.interval.is_some_and(|[low, _]| low > 1.0))
        };
        let workloads = self.workloads();
        Some(!workloads.is_empty() && workloads.iter().all(|workload| found(workload) == Some(true)))
    }

    /// The contenders that somebody wants to know about.
    fn subjects(&self) -> Vec<String> {
        let all = self.contenders();
        let is_subject = |name: &String| *name != self.base && Some(name) != self.again.as_ref();
        all.into_iter().filter(is_subject).collect()
    }

    fn verdict(&self) -> String {
        let Some(workload) = self.workloads().into_iter().next() else {
            return "Nothing was measured.".to_string();
        };
        let sentences = self.subjects().into_iter().filter_map(|name| {
            let said = &self.comparison(&workload, &name, Quantity::Cpu)?.words;
            Some(format!("{workload}: {said}."))
        });
        let sentences: Vec<String> = sentences.collect();
        if sentences.is_empty() {
            "There is nothing to compare with.".to_string()
        } else {
            sentences.join(" ")
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = Quantity::ALL.into_iter().filter_map(|it| self.forest(it)).collect();
        figures.extend(Quantity::ALL.into_iter().map(|it| self.bars(it)));
        figures.extend(self.workloads().iter().map(|workload| self.stacks(workload)));
        figures.push(self.table());
        figures
    }

    fn forest(&self, quantity: Quantity) -> Option<Figure> {
        let rows: Vec<Row> = self
            .comparisons
            .iter()
            .filter(|it| it.quantity == quantity)
            .filter_map(|it| {
                let ratio = it.ratio?;
                let [low, high] = ratio.interval?;
                let name = format!("{}, {}", it.contender, it.workload);
                let system = it.contender.clone();
                Some(Row { name, system, value: ratio.ratio, low, high, n: ratio.rounds as u64 })
            })
            .collect();
        let alt = rows
            .iter()
            .map(|row| format!("{}: {:.2} [{:.2}, {:.2}].", row.name, row.value, row.low, row.high));
        let alt: Vec<String> = alt.collect();
        let floors = self.workloads();
        let floors: Vec<[f64; 2]> = floors.iter().filter_map(|name| self.floor(name, quantity)).collect();
        let floor = floors.into_iter().reduce(|one, next| [one[0].min(next[0]), one[1].max(next[1])]);
        let title = format!("{}, divided by that of {}", capital(quantity.words()), self.base);
        let label = format!("{} / {}", quantity.words(), self.base);
        let content = Content::Forest(Forest { label, of: Estimate::Ratio, rows, floor });
        let is_empty = alt.is_empty();
        let figure = Figure::new(title, alt.join(" "), content).with_note(self.method.clone());
        (!is_empty).then_some(figure)
    }

    fn bars(&self, quantity: Quantity) -> Figure {
        let mut bars = Vec::new();
        let mut alt = String::new();
        for workload in self.workloads() {
            for name in self.contenders() {
                let rounds = self.values(&workload, &name, quantity);
                if let Some(median) = median(&rounds) {
                    let _ = write!(alt, "{workload}, {name}: {median:.2}. ");
                }
                bars.push(Bar { system: name, group: workload.clone(), rounds, interval: None });
            }
        }
        let title = format!("{}, median of rounds", capital(quantity.words()));
        let unit = quantity.unit().to_string();
        Figure::new(title, alt.trim_end(), Content::Bars(Bars { unit, bars }))
    }

    fn stacks(&self, workload: &str) -> Figure {
        let stacks: Vec<Stack> = self
            .contenders()
            .into_iter()
            .map(|system| {
                let of = |part: fn(&Sample) -> f64| {
                    let values: Vec<f64> =
                        self.of(workload, &system).map(|it| part(it) * 1e6 / it.requests as f64).collect();
                    median(&values).unwrap_or_default()
                };
                let values = vec![of(|it| it.cpu_user), of(|it| it.cpu_system)];
                Stack { system, values }
            })
            .collect();
        let alt = stacks
            .iter()
            .map(|stack| {
                format!("{}: {:.2} user, {:.2} system.", stack.system, stack.values[0], stack.values[1])
            })
            .collect::<Vec<String>>();
        let parts = vec!["user".to_string(), "system".to_string()];
        let content = Content::Stacks(Stacks { unit: "us".to_string(), parts, stacks });
        Figure::new(format!("Server CPU per request, {workload}"), alt.join(" "), content)
    }

    fn table(&self) -> Figure {
        let columns = vec![
            Column::plain("workload"),
            Column::plain("contender"),
            Column::of("CPU per request", "us"),
            Column::plain("ratio"),
            Column::plain("95 % interval"),
            Column::of("requests", "op/s"),
            Column::plain("ratio"),
            Column::plain("95 % interval"),
            Column::of("p50", "us"),
            Column::of("p99", "us"),
        ];
        let mut rows = Vec::new();
        for workload in self.workloads() {
            for name in self.contenders() {
                let number = |values: Vec<f64>| median(&values).map_or(Cell::Empty, Cell::Number);
                let mut row: Vec<Cell> = vec![workload.as_str().into(), name.as_str().into()];
                for quantity in Quantity::ALL {
                    row.push(number(self.values(&workload, &name, quantity)));
                    let ratio = self.comparison(&workload, &name, quantity).and_then(|it| it.ratio);
                    row.push(ratio.map_or(Cell::Empty, |it| Cell::Text(format!("{:.3}", it.ratio))));
                    let interval = ratio.and_then(|it| it.interval);
                    row.push(
                        interval.map_or(Cell::Empty, |[low, high]| format!("{low:.3} to {high:.3}").into()),
                    );
                }
                row.push(number(self.of(&workload, &name).map(|it| it.p50_us).collect()));
                row.push(number(self.of(&workload, &name).map(|it| it.p99_us).collect()));
                rows.push(row);
            }
        }
        Figure::new("Every contender under every workload", "", Content::Table(Table { columns, rows }))
            .with_note(
                "Medians of rounds; ratios are those within a round. Less CPU is better, more requests are.",
            )
    }

    /// For a terminal of 80 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for workload in self.workloads() {
            let workload_name = shortened(&workload, 17);
            let _ =
                writeln!(text, "\n{workload_name:<18}CPU us/req  ratio [95 %]          kreq/s  ratio [95 %]");
            for name in self.contenders() {
                let of = |quantity| median(&self.values(&workload, &name, quantity)).unwrap_or(f64::NAN);
                let ratio = |quantity| self.ratio_text(&workload, &name, quantity);
                let line = format!(
                    "{:<18}{:>10.2}  {:<20}{:>8.1}  {}",
                    shortened(&name, 17),
                    of(Quantity::Cpu),
                    ratio(Quantity::Cpu),
                    of(Quantity::Rate) / 1e3,
                    ratio(Quantity::Rate)
                );
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        text.push('\n');
        text.push_str(&self.sentences());
        text
    }

    fn ratio_text(&self, workload: &str, name: &str, quantity: Quantity) -> String {
        match self.comparison(workload, name, quantity).and_then(|it| it.ratio) {
            Some(Ratio { ratio, interval: Some([low, high]), .. }) => {
                format!("{ratio:.2} [{low:.2}, {high:.2}]")
            }
            Some(Ratio { ratio, .. }) => format!("{ratio:.2}"),
            None => String::new(),
        }
    }

    fn sentences(&self) -> String {
        let mut text = String::new();
        for it in self.comparisons.iter().filter(|it| Some(&it.contender) != self.again.as_ref()) {
            let _ = writeln!(text, "{}: {}.", it.workload, it.words);
        }
        for workload in self.workloads() {
            for quantity in Quantity::ALL {
                if let Some([low, high]) = self.floor(&workload, quantity) {
                    let words = quantity.words();
                    let _ = writeln!(
                        text,
                        "{workload}: noise in {words}, the same server twice: [{low:.2}, {high:.2}]."
                    );
                }
            }
        }
        let unmet = self.samples.iter().filter(|sample| !sample.unmet.is_empty()).count();
        if unmet > 0 {
            let of = self.samples.len();
            let _ = writeln!(text, "{unmet} of {of} samples miss a condition; see \"unmet\" in the record.");
        }
        if !self.absent.is_empty() {
            let _ = writeln!(text, "Not installed: {}.", self.absent.join(", "));
        }
        let _ = writeln!(text, "{}", self.method);
        text
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn shortened(text: &str, letters: usize) -> String {
    match text.chars().count() > letters {
        true => text.chars().take(letters - 1).chain(['~']).collect(),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests;
