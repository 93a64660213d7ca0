//! The report as one HTML file that needs nothing else: no network, no fonts, no script of anybody else's.
//!
//! Every text of a record is escaped, and a policy in the page's head lets a browser run this page's own script alone.

use std::fmt::Write;

use super::document::{Document, Run, Validity};
use super::download;
use super::escape::{html, json_in_html, percent};
use super::figures::{Content, Figure};
use super::grid::{Grid, VALUES_ABOVE};
use super::palette::Palette;
use super::plot::{Key, Plot};
use super::quantity::show;
use super::rows;
use super::svg::{Frame, NARROW, Svg, WIDE};
use crate::record::{Environment, Record};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
/// SHA-256 of [`SCRIPT`]: `openssl dgst -sha256 -binary page/script.js | base64`.
const SCRIPT_HASH: &str = "4SvkHNJbmm5RD4rJa8m9OyHHFijGlhmG2RxLHmIr/HA=";
/// Records beyond this are not put into the page, which then says so.
const RAW_BYTES_LIMIT: usize = 16 << 20;
/// Rows of a table beyond this are not put into the page, which then says so.
const ROWS_LIMIT: usize = 2000;

/// The page.
pub(super) fn page(document: &Document) -> String {
    let mut out = String::with_capacity(1 << 16);
    let title = html(&document.title);
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_HASH}'; base-uri 'none'; form-action 'none'"
    );
    let _ = writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} – Veracache report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<div class=\"layout\">"
    );
    navigation(&mut out, document);
    header(&mut out, document);
    out.push_str("<main>\n");
    environment(&mut out, document);
    validity(&mut out, document);
    let mut heading = "";
    for (number, run) in document.runs.iter().enumerate() {
        section(&mut out, document, number, run, heading != run.heading());
        heading = run.heading();
    }
    footer(&mut out, document);
    out.push_str("</main>\n</div>\n");
    if document.raw.len() <= RAW_BYTES_LIMIT {
        let _ = writeln!(
            out,
            "<script type=\"text/plain\" id=\"records\">{}</script>",
            json_in_html(&document.raw)
        );
    }
    let _ = writeln!(out, "<script>{SCRIPT}</script>\n</body>\n</html>");
    out
}

fn navigation(out: &mut String, document: &Document) {
    out.push_str("<nav aria-label=\"Contents\"><div><strong>Contents</strong><ol>\n");
    out.push_str("<li><a href=\"#environment\">Where it was measured</a></li>\n");
    out.push_str("<li><a href=\"#validity\">Conditions</a></li>\n");
    for (number, run) in document.runs.iter().enumerate() {
        let _ = writeln!(
            out,
            "<li><a href=\"#run{}\">{}</a></li>",
            number + 1,
            html(&run_name(document, number, run))
        );
    }
    out.push_str("<li><a href=\"#runs\">How to repeat it</a></li>\n</ol></div></nav>\n");
}

/// A run's heading, with its number where there are several of its kind.
pub(super) fn run_name(document: &Document, number: usize, run: &Run) -> String {
    let same = |other: &&Run| other.heading() == run.heading();
    if document.runs.iter().filter(same).count() == 1 {
        return run.heading().to_string();
    }
    format!("{} {}", run.heading(), document.runs[..=number].iter().filter(same).count())
}

fn badge(validity: &Validity) -> String {
    let class = match validity {
        Validity::Valid(_) => "badge good",
        Validity::Unknown => "badge",
        Validity::Doubtful(_) | Validity::Incomplete(_) => "badge bad",
    };
    format!("<span class=\"{class}\">{}</span>", html(&validity.words()))
}

/// Two boxes, one behind the other: an answer, and its confirmation.
const SIGN: &str = "<svg viewBox=\"0 0 22 22\" aria-hidden=\"true\"><rect class=\"bar c0 p2\" x=\"7\" y=\"1\" width=\"14\" \
     height=\"14\" rx=\"3\"/><rect class=\"bar c0\" x=\"1\" y=\"7\" width=\"14\" height=\"14\" rx=\"3\"/>\
     <path d=\"M4.6 14.2l2.6 2.6 4.6-5.2\" fill=\"none\" stroke=\"#fff\" stroke-width=\"2\"/></svg>";

fn header(out: &mut String, document: &Document) {
    let _ = writeln!(out, "<header>\n<p class=\"brand\">{SIGN}<span>Veracache report</span></p>");
    let _ = writeln!(out, "<h1>{}</h1>", html(&document.title));
    let mut dates: Vec<&str> = document.runs.iter().map(|run| run.record.began.as_str()).collect();
    dates.sort_unstable();
    let span = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (first, _) => first.copied().unwrap_or_default().to_string(),
    };
    let runs =
        if document.runs.len() == 1 { "1 run".to_string() } else { format!("{} runs", document.runs.len()) };
    let _ = writeln!(out, "<p class=\"sub\">{runs}, {}</p>", html(&span));
    if let [run] = &document.runs[..] {
        let _ =
            writeln!(out, "<p class=\"lead\">{}</p>\n<p>{}</p>", html(run.verdict()), badge(&run.validity()));
    } else {
        out.push_str("<ul class=\"verdicts\">\n");
        for (number, run) in document.runs.iter().enumerate() {
            let name = html(&run_name(document, number, run));
            let (link, badge, verdict) = (number + 1, badge(&run.validity()), html(run.verdict()));
            let _ = writeln!(
                out,
                "<li><div class=\"line\"><a href=\"#run{link}\">{name}</a>{badge}</div><p>{verdict}</p></li>"
            );
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</header>\n");
}

fn environment(out: &mut String, document: &Document) {
    out.push_str("<section id=\"environment\">\n<h2>Where it was measured</h2>\n");
    for place in document.environments() {
        out.push_str("<dl class=\"facts\">\n");
        for (name, value) in facts(&place) {
            let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", html(name), html(&value));
        }
        out.push_str("</dl>\n");
        if place.servers.is_empty() {
            continue;
        }
        let names: Vec<&str> = place.servers.iter().map(|server| server.name.as_str()).collect();
        let _ = writeln!(out, "<details><summary>Servers: {}</summary>", html(&names.join(", ")));
        out.push_str("<div class=\"scroll\"><table><thead><tr><th>server</th><th>version</th><th>started as</th></tr></thead><tbody>\n");
        for server in &place.servers {
            let (name, version, command) = (html(&server.name), html(&server.version), html(&server.command));
            let _ =
                writeln!(out, "<tr><td>{name}</td><td>{version}</td><td><code>{command}</code></td></tr>");
        }
        out.push_str("</tbody></table></div>\n</details>\n");
    }
    out.push_str("</section>\n");
}

/// A place's properties, by name.
pub(super) fn facts(place: &Environment) -> [(&'static str, String); 7] {
    let memory = u32::try_from(place.memory_bytes >> 20).unwrap_or(u32::MAX);
    [
        ("Processor", place.cpu.clone()),
        ("CPUs that could be used", place.cpus.to_string()),
        ("Memory", show(f64::from(memory) * 1024.0 * 1024.0, "bytes")),
        ("System", place.kernel.clone()),
        ("Frequency governor", place.governor.clone()),
        ("Huge pages", place.huge_pages.clone()),
        ("Veracache", place.version.clone()),
    ]
}

fn validity(out: &mut String, document: &Document) {
    let (count, met) = document.gates();
    let _ = writeln!(
        out,
        "<section id=\"validity\">\n<h2>Conditions</h2>\n<p class=\"question\">{}</p>",
        conditions(count, met)
    );
    // What is not met is in everybody's way; what is met can be looked up.
    if met < count {
        gates(out, document, |is_met| !is_met);
    }
    if met > 0 {
        let _ = writeln!(out, "<details><summary>Conditions that are met: {met}</summary>");
        gates(out, document, |is_met| is_met);
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

fn gates(out: &mut String, document: &Document, is_wanted: impl Fn(bool) -> bool) {
    out.push_str("<div class=\"scroll\"><table class=\"sorted\"><thead><tr><th>run</th><th>condition</th>");
    out.push_str("<th>state</th><th>found</th></tr></thead><tbody>\n");
    for (number, run) in document.runs.iter().enumerate() {
        for gate in run.record.gates.iter().filter(|gate| is_wanted(gate.is_met)) {
            let (class, state) = if gate.is_met { ("met", "✓ met") } else { ("missed", "✗ not met") };
            let (name, found) = (html(&gate.name), html(&gate.found));
            let run = html(&run_name(document, number, run));
            let _ = writeln!(
                out,
                "<tr><td>{run}</td><td>{name}</td><td class=\"{class}\">{state}</td><td>{found}</td></tr>"
            );
        }
    }
    out.push_str("</tbody></table></div>\n");
}

/// How many conditions are met, in a sentence.
pub(super) fn conditions(count: usize, met: usize) -> String {
    match count {
        0 => "No run states conditions for its results to mean something.".to_string(),
        _ if count == met => format!("All {count} conditions for the results to mean something are met."),
        _ => format!("{met} of {count} conditions for the results to mean something are met."),
    }
}

fn section(out: &mut String, document: &Document, number: usize, run: &Run, is_first: bool) {
    let name = html(&run_name(document, number, run));
    let _ = writeln!(out, "<section id=\"run{}\">\n<h2>{name}</h2>", number + 1);
    if is_first && !run.question().is_empty() {
        let _ = writeln!(out, "<p class=\"question\">{}</p>", html(run.question()));
    }
    if document.runs.len() > 1 {
        let _ =
            writeln!(out, "<p class=\"lead\">{}</p>\n<p>{}</p>", html(run.verdict()), badge(&run.validity()));
    }
    if let Some(limit) = &run.record.limited_by {
        let _ = writeln!(out, "<p class=\"note\">What limited it: {}.</p>", html(limit));
    }
    let is_doubtful = matches!(run.validity(), Validity::Doubtful(_) | Validity::Incomplete(_));
    for (index, one) in run.shown.figures.iter().enumerate() {
        let name = format!("{}-{}-{}", run.record.kind, number + 1, index + 1);
        figure(out, one, &name, is_doubtful, &document.palette);
    }
    for complaint in &run.complaints {
        let _ = writeln!(out, "<p class=\"complaint\">{}</p>", html(complaint));
    }
    out.push_str("</section>\n");
}

fn figure(out: &mut String, figure: &Figure, name: &str, is_doubtful: bool, palette: &Palette) {
    let class = if is_doubtful { "card invalid" } else { "card" };
    let _ = writeln!(
        out,
        "<figure class=\"{class}\">\n<figcaption><h3>{}</h3></figcaption>",
        html(&figure.title)
    );
    let (pictures, keys) = pictures(figure, palette);
    if let Content::Forest(forest) = &figure.content {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", html(&forest.label));
    }
    legend(out, &keys);
    let grid = Grid::of(figure);
    match pictures {
        Some([wide, narrow]) => {
            let _ = writeln!(out, "<div class=\"chart\">{wide}\n{narrow}</div>");
            notes(out, figure);
            // Ratios and findings are part of what these say; of the others the picture says it.
            let is_open = match &figure.content {
                Content::Forest(_) => true,
                Content::Series(series) => series.baseline.is_some(),
                _ => false,
            };
            let open = if is_open { " open" } else { "" };
            let _ = writeln!(out, "<details{open}><summary>Numbers</summary>");
            table(out, &grid);
            out.push_str("</details>\n");
        }
        None => {
            table(out, &grid);
            notes(out, figure);
        }
    }
    let file: String =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    out.push_str("<p class=\"links\">");
    link(out, &format!("{file}.csv"), "Numbers as CSV", "text/csv", &download::table(figure));
    if let Content::Percentiles(percentiles) = &figure.content {
        for line in &percentiles.lines {
            let text = format!("{} {}.hgrm", line.system, line.name);
            let text = text.trim_start().replace(" .", ".");
            link(out, &text.replace(['/', ' '], "-"), &text, "text/plain", &download::hgrm(line));
        }
    }
    out.push_str("</p>\n</figure>\n");
}

fn link(out: &mut String, file: &str, text: &str, kind: &str, content: &str) {
    let (file, text, content) = (html(file), html(text), percent(content));
    let _ = writeln!(out, "<a download=\"{file}\" href=\"data:{kind};charset=utf-8,{content}\">{text}</a>");
}

/// The picture for wide pages and the one for telephones, and the legend of both. None for tables.
fn pictures(figure: &Figure, palette: &Palette) -> (Option<[String; 2]>, Vec<Key>) {
    let alt = if figure.alt.is_empty() { &figure.title } else { &figure.alt };
    let both = |draw: &dyn Fn(Frame) -> String| Some([draw(WIDE), draw(NARROW)]);
    let plot = |make: &dyn Fn(Frame) -> Plot| {
        let keys = make(WIDE).keys();
        (both(&|frame| make(frame).draw(frame, alt)), keys)
    };
    match &figure.content {
        Content::Bars(bars) => (both(&|frame| rows::bars(bars, palette, frame, alt)), Vec::new()),
        Content::Stacks(stacks) => {
            (both(&|frame| rows::stacks(stacks, palette, frame, alt)), rows::stack_keys(stacks))
        }
        Content::Forest(forest) => (both(&|frame| rows::forest(forest, palette, frame, alt)), Vec::new()),
        Content::Curve(curve) => plot(&|frame| Plot::of_curve(curve, palette, frame)),
        Content::Percentiles(percentiles) => plot(&|frame| Plot::of_percentiles(percentiles, palette, frame)),
        Content::Cdf(cdf) => plot(&|frame| Plot::of_cdf(cdf, palette, frame)),
        Content::Series(series) => plot(&|frame| Plot::of_series(series, palette, frame)),
        Content::Table(_) => (None, Vec::new()),
    }
}

fn legend(out: &mut String, keys: &[Key]) {
    if keys.iter().all(|key| key.text.is_empty()) {
        return;
    }
    out.push_str("<ul class=\"legend\">");
    for Key { colour, dash, text } in keys {
        let mut svg = Svg::default();
        match dash {
            Some(dash) => {
                svg.path(&format!("line c{colour} d{}", dash % 4), &[(0.0, 6.0), (28.0, 6.0)]);
                svg.dot(&format!("dot c{colour}"), *dash, (14.0, 6.0), 4.0);
            }
            None => svg.rect(&format!("swatch p{colour}"), [8.0, 0.0, 12.0, 12.0]),
        }
        let sign = svg.sign(28.0, 12.0);
        let _ = write!(out, "<li>{sign}{}</li>", html(text));
    }
    out.push_str("</ul>\n");
}

fn notes(out: &mut String, figure: &Figure) {
    let note = |out: &mut String, text: &str| {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", html(text));
    };
    if !figure.note.is_empty() {
        note(out, &figure.note);
    }
    if let Some(text) = convention(&figure.content) {
        note(out, &text);
    }
}

/// How a picture is to be read, where that is the same for all of its kind.
pub(super) fn convention(content: &Content) -> Option<String> {
    match content {
        Content::Bars(bars) if bars.bars.iter().any(|bar| bar.interval.is_some()) => {
            Some("Bars are medians, dots are rounds, whiskers are 95 % intervals.".to_string())
        }
        Content::Bars(bars) if bars.bars.iter().any(|bar| bar.rounds.len() > 1) => {
            Some("Bars are medians, dots are rounds.".to_string())
        }
        Content::Curve(curve) if curve.lines.iter().flat_map(|line| &line.points).any(|point| point.is_hollow) => {
            Some("Hollow points: less was achieved than was offered, or a condition was not met.".to_string())
        }
        Content::Series(_) => Some("Dots are peaks, thin dotted lines averages.".to_string()),
        Content::Percentiles(_) => {
            Some(format!("A line ends where fewer than {VALUES_ABOVE} values lie above: nothing is claimed beyond."))
        }
        Content::Forest(forest) if forest.floor.is_some() => Some(
            "Lines are 95 % intervals; hollow: the interval contains 1. The band is what two equal servers are found to differ by.".to_string(),
        ),
        Content::Forest(_) => Some("Lines are 95 % intervals.".to_string()),
        _ => None,
    }
}

fn table(out: &mut String, grid: &Grid) {
    out.push_str("<div class=\"scroll\"><table class=\"sorted\"><thead><tr>");
    for head in &grid.heads {
        let class = if head.is_number { " class=\"n\"" } else { "" };
        let _ = write!(out, "<th{class}>{}</th>", html(&head.text));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in grid.rows.iter().take(ROWS_LIMIT) {
        out.push_str("<tr>");
        for (head, place) in grid.heads.iter().zip(row) {
            let class = if head.is_number { " class=\"n\"" } else { "" };
            let value = place.value.map_or(String::new(), |value| format!(" data-value=\"{value}\""));
            let _ = write!(out, "<td{class}{value}>{}</td>", html(&place.text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    if grid.rows.len() > ROWS_LIMIT {
        let _ = writeln!(
            out,
            "<p class=\"note\">{} further rows are in the records.</p>",
            grid.rows.len() - ROWS_LIMIT
        );
    }
}

fn footer(out: &mut String, document: &Document) {
    out.push_str("<section id=\"runs\">\n<h2>How to repeat it</h2>\n");
    out.push_str("<p class=\"question\">Each run with its seed, from which all that was drawn at random follows.</p>\n");
    out.push_str("<div class=\"scroll\"><table class=\"sorted\"><thead><tr><th>run</th><th>began</th><th class=\"n\">seed</th><th>command</th></tr></thead><tbody>\n");
    for (number, run) in document.runs.iter().enumerate() {
        let name = html(&run_name(document, number, run));
        let (began, seed, command) =
            (html(&run.record.began), run.record.seed, html(&command_line(&run.record)));
        let _ = writeln!(
            out,
            "<tr><td>{name}</td><td>{began}</td><td class=\"n\" data-value=\"{seed}\">{seed}</td><td><code>{command}</code></td></tr>"
        );
    }
    out.push_str("</tbody></table></div>\n</section>\n<footer>\n");
    if document.raw.len() > RAW_BYTES_LIMIT {
        out.push_str("<p>The records are too large to be kept in this page.</p>\n");
    }
    out.push_str("<p>This page is a function of the records alone. It loads nothing, and can be kept as a file.</p>\n</footer>\n");
}

/// The command as it can be pasted into a shell.
pub(super) fn command_line(record: &Record) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_=./:,%+@".contains(character);
    let quoted = record.command.iter().enumerate().map(|(number, word)| match word.rsplit('/').next() {
        // Where the executable lay says nothing.
        Some(name) if number == 0 => name.to_string(),
        _ if !word.is_empty() && word.chars().all(is_plain) => word.clone(),
        _ => format!("'{}'", word.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}
