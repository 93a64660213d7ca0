//! Lines over two axes: the one form behind curves, percentiles, distributions and series.

use super::figures::{Cdf, Curve, Distribution, Percentiles, Series, Side};
use super::grid::{average_and_peak, last_percentile, value_at};
use super::palette::Palette;
use super::quantity::{is_usable, show};
use super::scale::Scale;
use super::svg::{Anchor, Frame, Svg, text_width};

/// More points of one line can't be told apart on a screen.
const POINTS_LIMIT: usize = 600;
/// Dots are drawn only while they can be told apart.
const DOTS_LIMIT: usize = 60;

/// A legend's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Of the palette.
    pub(super) colour: usize,
    /// Which dashes and dots, where one system has several lines. None for areas.
    pub(super) dash: Option<usize>,
    /// System and line.
    pub(super) text: String,
}

/// What is drawn.
#[derive(Debug)]
pub(super) struct Plot {
    x: Scale,
    y: Scale,
    x_title: String,
    y_title: String,
    lines: Vec<Drawn>,
    marks: Vec<(Side, f64, String)>,
}

#[derive(Debug)]
struct Drawn {
    key: Key,
    points: Vec<(f64, f64)>,
    dots: Vec<Dot>,
    /// Where a thin line across stands, for series.
    average: Option<f64>,
}

/// A dot with its explanation. Invisible ones only explain.
#[derive(Debug)]
struct Dot {
    place: (f64, f64),
    class: &'static str,
    tip: String,
}

fn key(palette: &Palette, system: &str, name: &str, names: &[&str]) -> Key {
    let text = [system, name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let dash = names.iter().position(|known| *known == name).unwrap_or(0);
    Key { colour: palette.colour(system), dash: Some(dash), text }
}

/// The names of lines, each once, in the order in which they come: what decides dashes.
fn names<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in lines {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn title(label: &str, unit: &str, is_log: bool) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
    format!("{label}{unit}{}", if is_log { " (log scale)" } else { "" })
}

/// As much of a unit as the axis leaves unsaid.
fn axis_title(label: &str, scale: &Scale, unit: &str, is_log: bool) -> String {
    let said_by_ticks = is_log || !scale.unit.is_empty();
    title(label, if said_by_ticks { &scale.unit } else { unit }, is_log)
}

impl Plot {
    /// One quantity against another.
    pub(super) fn of_curve(curve: &Curve, palette: &Palette, frame: Frame) -> Self {
        let points = || curve.lines.iter().flat_map(|line| &line.points);
        let marks = |side: Side| curve.marks.iter().filter(move |mark| mark.on == side).map(|mark| mark.at);
        let scale = |values: &mut dyn Iterator<Item = f64>, is_log: bool, unit: &str, ticks: usize| {
            if is_log { Scale::log(values, unit, ticks) } else { Scale::from_zero(values, unit, ticks) }
        };
        let across = &mut points().map(|point| point.x).chain(marks(Side::X));
        let x = scale(across, curve.x.is_log, &curve.x.unit, if frame.is_narrow { 4 } else { 8 });
        let up = &mut points().map(|point| point.y).chain(marks(Side::Y));
        let y = scale(up, curve.y.is_log, &curve.y.unit, 6);
        let names = names(curve.lines.iter().map(|line| line.name.as_str()));
        let lines = curve.lines.iter().map(|line| {
            let key = key(palette, &line.system, &line.name, &names);
            let usable = line.points.iter().filter(|point| is_usable(point.x) && is_usable(point.y));
            let usable = usable.filter(|point| !curve.y.is_log || point.y > 0.0);
            let dots = usable.clone().take(DOTS_LIMIT).map(|point| Dot {
                place: (point.x, point.y),
                class: if point.is_hollow { "hollow" } else { "dot" },
                tip: format!(
                    "{}: {} at {}",
                    key.text,
                    show(point.y, &curve.y.unit),
                    show(point.x, &curve.x.unit)
                ),
            });
            let dots = dots.collect();
            Drawn { dots, points: usable.map(|point| (point.x, point.y)).collect(), key, average: None }
        });
        let lines = lines.collect();
        let marks = curve.marks.iter().filter(|mark| is_usable(mark.at));
        Plot {
            x_title: axis_title(&curve.x.label, &x, &curve.x.unit, curve.x.is_log),
            y_title: axis_title(&curve.y.label, &y, &curve.y.unit, curve.y.is_log),
            x,
            y,
            lines,
            marks: marks.map(|mark| (mark.on, mark.at, mark.text.clone())).collect(),
        }
    }

    /// Latency by percentile: the higher it is, the wider its share of the axis.
    pub(super) fn of_percentiles(percentiles: &Percentiles, palette: &Palette, frame: Frame) -> Self {
        let nines = |percentile: f64| -(1.0 - percentile / 100.0).log10();
        let last = percentiles.lines.iter().map(|line| last_percentile(line.count)).fold(50.0, f64::max);
        let names_of_ticks = [
            (0.0, "0"),
            (50.0, "50 %"),
            (90.0, "90 %"),
            (99.0, "99 %"),
            (99.9, "99.9 %"),
            (99.99, "99.99 %"),
            (99.999, "99.999 %"),
            (99.9999, "99.9999 %"),
        ];
        // On a telephone every name needs the room of two.
        let ticks = names_of_ticks.iter().filter(|(at, _)| *at <= last + 1e-9);
        let ticks = ticks.filter(|(at, _)| !frame.is_narrow || *at != 50.0);
        let ticks: Vec<(f64, String)> =
            ticks.map(|(at, name)| (nines(*at), name.replace(" %", ""))).collect();
        let x = Scale::with_ticks(0.0, nines(last), false, ticks);
        let claimed = |line: &Distribution| {
            let last = last_percentile(line.count);
            let rows =
                line.rows.iter().filter(move |row| row[0] <= last && row[0] >= 0.0 && is_usable(row[1]));
            rows.map(move |row| (nines(row[0]), row[1])).collect::<Vec<_>>()
        };
        let y_scale = |values: Vec<f64>| {
            let values = values.into_iter();
            if percentiles.is_log {
                Scale::log(values, &percentiles.unit, 6)
            } else {
                Scale::from_zero(values, &percentiles.unit, 5)
            }
        };
        let y = y_scale(percentiles.lines.iter().flat_map(claimed).map(|point| point.1).collect());
        let names = names(percentiles.lines.iter().map(|line| line.name.as_str()));
        let lines = percentiles.lines.iter().map(|line| {
            let key = key(palette, &line.system, &line.name, &names);
            let tips = [50.0, 90.0, 99.0, 99.9, 99.99].into_iter().filter_map(|percentile| {
                let value = value_at(line, percentile)?;
                let tip = format!("{}: p{percentile} is {}", key.text, show(value, &percentiles.unit));
                Some(Dot { place: (nines(percentile), value), class: "dot", tip })
            });
            Drawn { dots: tips.collect(), points: claimed(line), key, average: None }
        });
        Plot {
            lines: lines.collect(),
            x_title: "percentile (log scale of what is above)".to_string(),
            y_title: axis_title("latency", &y, &percentiles.unit, percentiles.is_log),
            x,
            y,
            marks: Vec::new(),
        }
    }

    /// The share of values up to a value.
    pub(super) fn of_cdf(cdf: &Cdf, palette: &Palette, frame: Frame) -> Self {
        let values = || cdf.lines.iter().flat_map(|line| &line.rows).map(|row| row[1]);
        let ticks = if frame.is_narrow { 4 } else { 7 };
        let x = if cdf.is_log {
            Scale::log(values(), &cdf.unit, ticks)
        } else {
            Scale::from_zero(values(), &cdf.unit, ticks)
        };
        let y = Scale::linear(0.0, 100.0, "%", 5);
        let names = names(cdf.lines.iter().map(|line| line.name.as_str()));
        let lines = cdf.lines.iter().map(|line| {
            let key = key(palette, &line.system, &line.name, &names);
            let usable = line.rows.iter().filter(|row| is_usable(row[0]) && is_usable(row[1]));
            let usable = usable.filter(|row| !cdf.is_log || row[1] > 0.0);
            let tips = [50.0, 90.0, 99.0].into_iter().filter_map(|percentile| {
                let value = value_at(line, percentile)?;
                let tip = format!("{}: {percentile} % up to {}", key.text, show(value, &cdf.unit));
                Some(Dot { place: (value, percentile), class: "dot", tip })
            });
            let dots = tips.collect();
            Drawn { dots, points: usable.map(|row| (row[1], row[0])).collect(), key, average: None }
        });
        Plot {
            lines: lines.collect(),
            x_title: axis_title(&cdf.label, &x, &cdf.unit, cdf.is_log),
            y_title: "share of values up to this, %".to_string(),
            x,
            y,
            marks: Vec::new(),
        }
    }

    /// A quantity over time, from zero, with a dot at each peak.
    pub(super) fn of_series(series: &Series, palette: &Palette, frame: Frame) -> Self {
        let points = || series.lines.iter().flat_map(|line| &line.points);
        let events = series.events.iter().filter(|event| is_usable(event.seconds));
        let times = points().map(|point| point[0]).chain(events.clone().map(|event| event.seconds));
        let x = Scale::from_zero(times, "s", if frame.is_narrow { 4 } else { 8 });
        let y = Scale::from_zero(points().map(|point| point[1]), &series.unit, 5);
        let names = names(series.lines.iter().map(|line| line.name.as_str()));
        let lines = series.lines.iter().map(|line| {
            let key = key(palette, &line.system, &line.name, &names);
            let found = average_and_peak(&line.points);
            let peak = found.map(|(average, peak)| Dot {
                place: (peak[0], peak[1]),
                class: "dot",
                tip: format!(
                    "{}: peak {}, average {}",
                    key.text,
                    show(peak[1], &series.unit),
                    show(average, &series.unit)
                ),
            });
            let usable = line.points.iter().filter(|point| is_usable(point[0]) && is_usable(point[1]));
            Drawn {
                dots: peak.into_iter().collect(),
                points: usable.map(|point| (point[0], point[1])).collect(),
                average: found.map(|(average, _)| average),
                key,
            }
        });
        Plot {
            lines: lines.collect(),
            x_title: title("time", &x.unit, false),
            y_title: axis_title(&series.label, &y, &series.unit, false),
            x,
            y,
            marks: events.map(|event| (Side::X, event.seconds, event.text.clone())).collect(),
        }
    }

    /// What the lines are called.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lines.iter().map(|line| line.key.clone()).collect()
    }

    /// The picture.
    pub(super) fn draw(&self, frame: Frame, alt: &str) -> String {
        let widest = self.y.ticks.iter().map(|(_, name)| text_width(name)).fold(20.0, f64::max);
        let area = Area {
            left: widest + 12.0,
            top: 30.0,
            right: frame.width - 14.0,
            bottom: if frame.is_narrow { 240.0 } else { 330.0 },
        };
        let mut svg = Svg::default();
        self.axes(&mut svg, &area);
        self.marks(&mut svg, &area);
        for line in &self.lines {
            self.draw_line(&mut svg, &area, line);
        }
        svg.finish(frame, area.bottom + 46.0, alt)
    }

    fn axes(&self, svg: &mut Svg, area: &Area) {
        svg.text("title", Anchor::Start, (0.0, 14.0), &self.y_title);
        for (value, name) in &self.y.ticks {
            let y = area.y(&self.y, *value);
            svg.line(
                if name.is_empty() { "gridline faint" } else { "gridline" },
                [area.left, y, area.right, y],
            );
            svg.text("tick", Anchor::End, (area.left - 8.0, y + 4.0), name);
        }
        for (value, name) in &self.x.ticks {
            let x = area.x(&self.x, *value);
            svg.line("axis", [x, area.bottom, x, area.bottom + if name.is_empty() { 2.5 } else { 5.0 }]);
            if name.is_empty() {
                continue;
            }
            let half = text_width(name) / 2.0;
            let x = x.min(area.right + 14.0 - half);
            svg.text("tick", Anchor::Middle, (x, area.bottom + 19.0), name);
        }
        svg.line("axis", [area.left, area.bottom, area.right, area.bottom]);
        svg.text("title", Anchor::End, (area.right, area.bottom + 39.0), &self.x_title);
    }

    fn marks(&self, svg: &mut Svg, area: &Area) {
        // Texts of neighbouring marks stand on lines of their own.
        for (number, (side, at, text)) in self.marks.iter().enumerate() {
            match side {
                Side::X => {
                    let x = area.x(&self.x, *at);
                    svg.line("mark", [x, area.top, x, area.bottom]);
                    let is_right = x + text_width(text) + 6.0 > area.right;
                    let (anchor, x) =
                        if is_right { (Anchor::End, x - 5.0) } else { (Anchor::Start, x + 5.0) };
                    let row = super::scale::usize_as_f64(number % 4);
                    svg.text("mark", anchor, (x, area.top + 12.0 + 15.0 * row), text);
                }
                Side::Y => {
                    let y = area.y(&self.y, *at);
                    svg.line("mark", [area.left, y, area.right, y]);
                    svg.text("mark", Anchor::Start, (area.left + 6.0, y - 5.0), text);
                }
            }
        }
    }

    fn draw_line(&self, svg: &mut Svg, area: &Area, line: &Drawn) {
        let place = |(x, y): (f64, f64)| (area.x(&self.x, x), area.y(&self.y, y));
        let Key { colour, dash, .. } = &line.key;
        let dash = dash.unwrap_or(0);
        let points: Vec<(f64, f64)> = line.points.iter().map(|point| place(*point)).collect();
        if let Some(average) = line.average.filter(|average| self.y.has(*average)) {
            let y = area.y(&self.y, average);
            svg.line(&format!("average c{colour}"), [area.left, y, area.right, y]);
        }
        svg.path(&format!("line c{colour} d{}", dash % 4), &thinned(points));
        for dot in &line.dots {
            if self.x.has(dot.place.0) && self.y.has(dot.place.1) {
                let class = format!("{} c{colour}", dot.class);
                svg.tip(&dot.tip, |svg| {
                    svg.dot("reach", 0, place(dot.place), 11.0);
                    svg.dot(&class, dash, place(dot.place), 4.0);
                });
            }
        }
    }
}

/// Where the lines are, within the picture.
#[derive(Debug)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + (self.right - self.left) * scale.share(value)
    }

    fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * scale.share(value)
    }
}

/// As many points as can be told apart: of each run of neighbours the first, the highest, the lowest and the last, so
/// that no peak is lost.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_LIMIT {
        return points;
    }
    let run = points.len().div_ceil(POINTS_LIMIT / 4);
    let mut kept = Vec::new();
    for neighbours in points.chunks(run) {
        let by_height = |one: &usize, other: &usize| neighbours[*one].1.total_cmp(&neighbours[*other].1);
        let indices = 0..neighbours.len();
        let mut chosen =
            [Some(0), indices.clone().min_by(by_height), indices.clone().max_by(by_height), indices.last()];
        chosen.sort_unstable();
        let mut before = None;
        for index in chosen.into_iter().flatten() {
            if before != Some(index) {
                kept.push(neighbours[index]);
            }
            before = Some(index);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::Samples;
    use crate::report::svg::{NARROW, WIDE};

    #[test]
    fn thinning_keeps_ends_and_peaks() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|x| (f64::from(x), 5.0)).collect();
        points[7003].1 = 0.0;
        points[7001].1 = 9.0;
        let kept = thinned(points.clone());
        assert!(kept.len() <= POINTS_LIMIT, "{}", kept.len());
        assert_eq!(kept.first(), points.first());
        assert_eq!(kept.last(), points.last());
        assert!(kept.contains(&points[7001]));
        assert!(kept.contains(&points[7003]));
        assert!(kept.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let points = vec![[0.0, f64::NAN], [1e300, 1.0], [1.0, 3.0], [2.0, 1e-320], [3.0, 2.0]];
        let lines = vec![Samples { system: "<a>".to_string(), points, ..Samples::default() }];
        let series = Series {
            label: "l".to_string(),
            unit: "bytes".to_string(),
            baseline: None,
            lines,
            events: Vec::new(),
        };
        for frame in [WIDE, NARROW] {
            let svg = Plot::of_series(&series, &Palette::default(), frame).draw(frame, "\"alt\"");
            assert!(!svg.contains("NaN"), "{svg}");
            assert!(!svg.contains("inf"), "{svg}");
            assert!(svg.contains("<title>&lt;a&gt;: peak 3.00 B"), "{svg}");
            assert!(svg.contains("aria-label=\"&quot;alt&quot;\""), "{svg}");
        }
    }
}
