//! Pictures of one row per system or workload: bars from zero, bars of parts, estimates with their intervals.

use super::figures::{Bar, Bars, Estimate, Forest, Row, Stacks};
use super::grid::{estimate, is_open};
use super::palette::Palette;
use super::plot::Key;
use super::quantity::{is_usable, median, show};
use super::scale::{Scale, usize_as_f64};
use super::svg::{Anchor, Frame, Svg, fitted, name_width, text_width};

/// More rows than this are left to the table below the picture.
const ROWS_LIMIT: usize = 60;
const BAR_HEIGHT: f64 = 24.0;
const ROW_HEIGHT: f64 = 36.0;
const GROUP_HEIGHT: f64 = 30.0;
const AXIS_HEIGHT: f64 = 46.0;

/// Where rows have their names, and where their values lie.
struct Columns {
    left: f64,
    right: f64,
}

impl Columns {
    /// Names have the room they need, up to a part of the picture; `behind` is kept free for what follows a bar.
    fn of<'a>(names: impl Iterator<Item = &'a str>, frame: Frame, behind: f64) -> Self {
        let widest = names.map(name_width).fold(30.0, f64::max);
        let most = frame.width * if frame.is_narrow { 0.3 } else { 0.28 };
        Columns { left: widest.min(most) + 10.0, right: frame.width - behind }
    }

    fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + (self.right - self.left) * scale.share(value)
    }

    fn name(&self, svg: &mut Svg, class: &str, y: f64, name: &str) {
        let text = fitted(name, self.left - 10.0);
        svg.tip(name, |svg| svg.text(class, Anchor::End, (self.left - 10.0, y + 4.0), &text));
    }

    fn grid(&self, svg: &mut Svg, scale: &Scale, [top, bottom]: [f64; 2]) {
        for (value, name) in &scale.ticks {
            let x = self.x(scale, *value);
            svg.line("gridline", [x, top, x, bottom]);
            svg.text("tick", Anchor::Middle, (x, bottom + 18.0), name);
        }
    }
}

/// One bar per system, as long as the median, with the interval as whiskers and every round as a dot.
pub(super) fn bars(bars: &Bars, palette: &Palette, frame: Frame, alt: &str) -> String {
    let shown = &bars.bars[..bars.bars.len().min(ROWS_LIMIT)];
    let values = shown.iter().flat_map(|bar| bar.rounds.iter().chain(bar.interval.iter().flatten())).copied();
    let scale = Scale::from_zero_tight(values, &bars.unit, if frame.is_narrow { 3 } else { 6 });
    let behind =
        shown.iter().filter_map(|bar| median(&bar.rounds)).map(|value| text_width(&show(value, &bars.unit)));
    let columns =
        Columns::of(shown.iter().map(|bar| bar.system.as_str()), frame, behind.fold(60.0, f64::max) + 10.0);
    let groups = shown.iter().enumerate().filter(|(number, bar)| begins_group(shown, *number, bar)).count();
    let bottom = 6.0 + ROW_HEIGHT * usize_as_f64(shown.len()) + GROUP_HEIGHT * usize_as_f64(groups);
    let mut svg = Svg::default();
    columns.grid(&mut svg, &scale, [6.0, bottom]);
    let mut y = 6.0;
    for (number, bar) in shown.iter().enumerate() {
        if begins_group(shown, number, bar) {
            svg.text("group", Anchor::Start, (0.0, y + 20.0), &fitted(&bar.group, frame.width));
            y += GROUP_HEIGHT;
        }
        one_bar(&mut svg, &columns, &scale, y + ROW_HEIGHT / 2.0, bar, &bars.unit, palette);
        y += ROW_HEIGHT;
    }
    svg.line("axis", [columns.left, 6.0, columns.left, bottom]);
    svg.text("title", Anchor::End, (columns.right, bottom + 38.0), &scale.unit);
    svg.finish(frame, bottom + AXIS_HEIGHT, alt)
}

fn begins_group(bars: &[Bar], number: usize, bar: &Bar) -> bool {
    !bar.group.is_empty() && (number == 0 || bars[number - 1].group != bar.group)
}

fn one_bar(
    svg: &mut Svg,
    columns: &Columns,
    scale: &Scale,
    y: f64,
    bar: &Bar,
    unit: &str,
    palette: &Palette,
) {
    columns.name(svg, "name", y, &bar.system);
    let Some(value) = median(&bar.rounds) else {
        svg.text("tick", Anchor::Start, (columns.left + 8.0, y + 4.0), "not measured");
        return;
    };
    let colour = palette.colour(&bar.system);
    let end = columns.x(scale, value);
    let mut farthest = end;
    let tip = format!("{} {}: {}, {} rounds", bar.group, bar.system, show(value, unit), bar.rounds.len());
    svg.tip(tip.trim_start(), |svg| {
        svg.rect(
            &format!("bar c{colour}"),
            [columns.left, y - BAR_HEIGHT / 2.0, end - columns.left, BAR_HEIGHT],
        );
    });
    if let Some([low, high]) = bar.interval.filter(|ends| ends.iter().all(|end| is_usable(*end))) {
        let (low, high) = (columns.x(scale, low), columns.x(scale, high));
        svg.line("whisker", [low, y, high, y]);
        svg.line("whisker", [low, y - 5.0, low, y + 5.0]);
        svg.line("whisker", [high, y - 5.0, high, y + 5.0]);
        farthest = farthest.max(high);
    }
    if bar.rounds.len() > 1 {
        for (number, round) in bar.rounds.iter().enumerate().filter(|(_, round)| is_usable(**round)) {
            let x = columns.x(scale, *round);
            // Neighbouring rounds stand on different heights, so that equal ones can be counted.
            let height = [-7.0, 3.5, -3.5, 7.0, 0.0][number % 5];
            svg.tip(&format!("round {}: {}", number + 1, show(*round, unit)), |svg| {
                svg.dot("round", 0, (x, y + height), 2.6);
            });
            farthest = farthest.max(x + 3.0);
        }
    }
    svg.text("value", Anchor::Start, (farthest + 7.0, y + 4.5), &show(value, unit));
}

/// One bar per system, of its parts.
pub(super) fn stacks(stacks: &Stacks, palette: &Palette, frame: Frame, alt: &str) -> String {
    let shown = &stacks.stacks[..stacks.stacks.len().min(ROWS_LIMIT)];
    let sum = |values: &[f64]| {
        values.iter().take(stacks.parts.len()).filter(|value| is_usable(**value)).sum::<f64>()
    };
    let scale = Scale::from_zero_tight(
        shown.iter().map(|stack| sum(&stack.values)),
        &stacks.unit,
        if frame.is_narrow { 3 } else { 6 },
    );
    let behind =
        shown.iter().map(|stack| text_width(&show(sum(&stack.values), &stacks.unit))).fold(60.0, f64::max);
    let columns = Columns::of(shown.iter().map(|stack| stack.system.as_str()), frame, behind + 10.0);
    let bottom = 6.0 + ROW_HEIGHT * usize_as_f64(shown.len());
    let mut svg = Svg::default();
    columns.grid(&mut svg, &scale, [6.0, bottom]);
    for (number, stack) in shown.iter().enumerate() {
        let y = 6.0 + ROW_HEIGHT * (usize_as_f64(number) + 0.5);
        columns.name(&mut svg, "name", y, &stack.system);
        let colour = palette.colour(&stack.system);
        let mut below = 0.0;
        for (part, (name, value)) in stacks.parts.iter().zip(&stack.values).enumerate() {
            if !is_usable(*value) {
                continue;
            }
            let (begin, end) = (columns.x(&scale, below), columns.x(&scale, below + value));
            svg.tip(&format!("{}: {name} {}", stack.system, show(*value, &stacks.unit)), |svg| {
                let sides = [begin, y - BAR_HEIGHT / 2.0, end - begin, BAR_HEIGHT];
                svg.rect(&format!("bar c{colour} p{}", part % 4), sides);
            });
            below += value;
        }
        let text = show(below, &stacks.unit);
        svg.text("value", Anchor::Start, (columns.x(&scale, below) + 7.0, y + 4.5), &text);
    }
    svg.line("axis", [columns.left, 6.0, columns.left, bottom]);
    svg.text("title", Anchor::End, (columns.right, bottom + 38.0), &scale.unit);
    svg.finish(frame, bottom + AXIS_HEIGHT, alt)
}

/// The parts, for the legend: shades, as colours are the systems'.
pub(super) fn stack_keys(stacks: &Stacks) -> Vec<Key> {
    stacks
        .parts
        .iter()
        .enumerate()
        .map(|(part, name)| Key { colour: part % 4, dash: None, text: name.clone() })
        .collect()
}

/// One row per estimate: a dot with its interval, and what equal things are found to differ by as a band.
pub(super) fn forest(forest: &Forest, palette: &Palette, frame: Frame, alt: &str) -> String {
    let shown = &forest.rows[..forest.rows.len().min(ROWS_LIMIT)];
    let text = |row: &Row| {
        let (value, ends) = estimate(forest.of, row);
        if frame.is_narrow { value } else { format!("{value} {ends}") }
    };
    let behind = shown.iter().map(|row| text_width(&text(row))).fold(50.0, f64::max) + 24.0;
    // On a telephone names stand above their rows.
    let names = shown.iter().map(|row| if frame.is_narrow { "" } else { row.name.as_str() });
    let mut columns = Columns::of(names, frame, behind);
    if frame.is_narrow {
        columns.left = 12.0;
    }
    let (height, first) = if frame.is_narrow { (46.0, 14.0) } else { (34.0, 10.0) };
    let bottom = first + height * usize_as_f64(shown.len());
    let scale = forest_scale(forest, shown, frame);
    let mut svg = Svg::default();
    columns.grid(&mut svg, &scale, [first, bottom]);
    let usable_floor = forest.floor.filter(|floor| floor.iter().all(|end| is_usable(*end)));
    if let Some([low, high]) = usable_floor {
        let (low, high) = (columns.x(&scale, low), columns.x(&scale, high));
        svg.tip("what equal servers are found to differ by", |svg| {
            svg.rect("floor", [low, first, high - low, bottom - first]);
        });
    }
    if forest.of == Estimate::Ratio {
        let x = columns.x(&scale, 1.0);
        svg.line("centre", [x, first, x, bottom]);
    }
    for (number, row) in shown.iter().enumerate() {
        let top = first + height * usize_as_f64(number);
        let y = if frame.is_narrow { top + height - 12.0 } else { top + height / 2.0 };
        if frame.is_narrow {
            svg.text("name", Anchor::Start, (0.0, top + 14.0), &fitted(&row.name, frame.width));
        } else {
            columns.name(&mut svg, "name", y, &row.name);
        }
        one_estimate(&mut svg, &columns, &scale, y, forest.of, row, palette);
        svg.text("value", Anchor::End, (frame.width, y + 4.5), &text(row));
    }
    let title = if forest.of == Estimate::Ratio { "ratio (log scale)" } else { "share" };
    svg.text("title", Anchor::End, (columns.right, bottom + 38.0), title);
    svg.finish(frame, bottom + AXIS_HEIGHT, alt)
}

fn forest_scale(forest: &Forest, rows: &[Row], frame: Frame) -> Scale {
    let values = || {
        rows.iter()
            .flat_map(|row| [row.value, row.low, row.high])
            .chain(forest.floor.iter().flatten().copied())
    };
    let usable = || values().filter(|value| is_usable(*value));
    match forest.of {
        Estimate::Share => {
            // Coverage lies near 100 %: the axis begins where the lowest interval does, as far down as 0.
            let lowest = usable().fold(1.0, f64::min).clamp(0.0, 1.0);
            let below = if lowest > 0.9 {
                90.0
            } else if lowest > 0.5 {
                50.0
            } else {
                0.0
            };
            let step = (100.0 - below) / if frame.is_narrow { 2.0 } else { 5.0 };
            let count = if frame.is_narrow { 3 } else { 6 };
            let ticks = (0..count).map(|number| below + step * f64::from(number));
            let ticks = ticks.map(|tick| (tick / 100.0, format!("{tick:.0} %"))).collect();
            Scale::with_ticks(below / 100.0, 1.0, false, ticks)
        }
        Estimate::Ratio => {
            let reach =
                usable().filter(|value| *value > 0.0).map(|value| value.ln().abs()).fold(0.05, f64::max);
            let reach = (reach * 1.08).min(20.0);
            let steps: &[f64] = match reach {
                ..0.06 => &[1.02, 1.04],
                ..0.16 => &[1.05, 1.1, 1.15],
                ..0.45 if frame.is_narrow => &[1.2, 1.4],
                ..0.45 => &[1.1, 1.2, 1.3, 1.4, 1.5],
                ..0.8 => &[1.25, 1.5, 2.0],
                ..2.4 => &[2.0, 4.0, 8.0],
                _ => &[10.0, 100.0, 1e3, 1e4, 1e6, 1e8],
            };
            let steps = steps.iter().filter(|step| step.ln() <= reach).copied().collect::<Vec<_>>();
            let below = steps.iter().rev().map(|step| 1.0 / step);
            let ticks = below.chain([1.0]).chain(steps.iter().copied());
            let name =
                |value: f64| format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_string();
            let ticks = ticks.map(|tick| (tick, name(tick))).filter(|(_, name)| name != "0").collect();
            Scale::with_ticks((-reach).exp(), reach.exp(), true, ticks)
        }
    }
}

fn one_estimate(
    svg: &mut Svg,
    columns: &Columns,
    scale: &Scale,
    y: f64,
    of: Estimate,
    row: &Row,
    palette: &Palette,
) {
    if ![row.value, row.low, row.high].into_iter().all(is_usable) {
        return;
    }
    let [low, value, high] = [row.low, row.value, row.high].map(|value| columns.x(scale, value));
    let colour = if row.system.is_empty() { 0 } else { palette.colour(&row.system) };
    // Hollow: the interval leaves open whether there is a difference.
    let class = if of == Estimate::Ratio && is_open(row) { "hollow" } else { "dot" };
    let (text, ends) = estimate(of, row);
    svg.tip(&format!("{}: {text} {ends}, n = {}", row.name, row.n), |svg| {
        svg.line(&format!("interval c{colour}"), [low, y, high, y]);
        svg.line(&format!("interval c{colour}"), [low, y - 5.0, low, y + 5.0]);
        svg.line(&format!("interval c{colour}"), [high, y - 5.0, high, y + 5.0]);
        svg.dot(&format!("{class} c{colour}"), 0, (value, y), 5.5);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::{NARROW, WIDE};

    fn row(value: f64, low: f64, high: f64) -> Row {
        Row {
            name: "a row with a name that is far too long for a telephone & more".to_string(),
            value,
            low,
            high,
            n: 3,
            ..Row::default()
        }
    }

    #[test]
    fn any_estimate_can_be_drawn() {
        let values = [
            vec![],
            vec![row(1.0, 1.0, 1.0)],
            vec![row(0.0, -1.0, 0.0), row(f64::NAN, 0.0, f64::INFINITY)],
            vec![row(1e29, 1e-29, 1e30)],
            vec![row(0.99, 0.985, 0.995); ROWS_LIMIT + 5],
        ];
        for rows in values {
            for of in [Estimate::Ratio, Estimate::Share] {
                let picture = Forest {
                    label: "l".to_string(),
                    of,
                    rows: rows.clone(),
                    floor: Some([0.0, f64::INFINITY]),
                };
                for frame in [WIDE, NARROW] {
                    let svg = super::forest(&picture, &Palette::default(), frame, "alt");
                    // Every second part is the value of an attribute.
                    let mut values = svg.split('"').skip(1).step_by(2);
                    assert!(!values.any(|value| value.contains("NaN") || value.contains("inf")), "{svg}");
                }
            }
        }
    }

    #[test]
    fn bars_begin_at_zero_and_show_every_round() {
        let bar = Bar { rounds: vec![100.0, 300.0, 200.0], interval: Some([120.0, 280.0]), ..Bar::of("a") };
        let picture = Bars { unit: "op/s".to_string(), bars: vec![bar, Bar::of("b")] };
        let svg = bars(&picture, &Palette::default(), WIDE, "alt");
        assert_eq!(svg.matches("class=\"round\"").count(), 3);
        assert_eq!(svg.matches("class=\"whisker\"").count(), 3);
        assert!(svg.contains(">0</text>"), "{svg}");
        assert!(svg.contains(">not measured</text>"), "{svg}");
        assert!(svg.contains(">200 op/s</text>"), "{svg}");
    }
}
