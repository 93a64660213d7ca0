//! Which colour a system has: the same one in every picture of a report.

use super::figures::{Content, Figure};

/// How many systems have a colour of their own; `style.css` defines them. Further ones share a grey.
pub(super) const COLOURS: usize = 8;

/// The systems of a report, in the order in which they are first seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Palette {
    systems: Vec<String>,
}

impl Palette {
    /// Of all figures of a report.
    pub(super) fn of<'a>(figures: impl Iterator<Item = &'a Figure>) -> Self {
        let mut palette = Palette::default();
        for figure in figures {
            match &figure.content {
                Content::Bars(bars) => palette.add(bars.bars.iter().map(|bar| &bar.system)),
                Content::Stacks(stacks) => palette.add(stacks.stacks.iter().map(|stack| &stack.system)),
                Content::Curve(curve) => palette.add(curve.lines.iter().map(|line| &line.system)),
                Content::Percentiles(percentiles) => {
                    palette.add(percentiles.lines.iter().map(|line| &line.system));
                }
                Content::Cdf(cdf) => palette.add(cdf.lines.iter().map(|line| &line.system)),
                Content::Series(series) => palette.add(series.lines.iter().map(|line| &line.system)),
                Content::Forest(forest) => {
                    palette.add(forest.rows.iter().map(|row| &row.system).filter(|name| !name.is_empty()));
                }
                Content::Table(_) => {}
            }
        }
        palette
    }

    fn add<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            if self.systems.len() < COLOURS && !self.systems.contains(name) {
                self.systems.push(name.clone());
            }
        }
    }

    /// The number of a system's colour, [`COLOURS`] for the grey.
    pub(super) fn colour(&self, system: &str) -> usize {
        self.systems.iter().position(|known| known == system).unwrap_or(COLOURS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::{Bar, Bars};

    #[test]
    fn colours_follow_the_order_of_appearance() {
        let figure = |names: &[&str]| {
            let bars = names.iter().map(|name| Bar::of(*name)).collect();
            Figure::new("t", "a", Content::Bars(Bars { unit: String::new(), bars }))
        };
        let figures = [figure(&["a", "b"]), figure(&["c", "b", "d", "e", "f", "g", "h", "i", "j"])];
        let palette = Palette::of(figures.iter());
        let colours: Vec<usize> =
            ["a", "b", "c", "h", "i", "j", "?"].map(|name| palette.colour(name)).to_vec();
        assert_eq!(colours, [0, 1, 2, 7, COLOURS, COLOURS, COLOURS]);
    }
}
