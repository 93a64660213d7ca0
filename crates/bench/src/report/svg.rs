//! A picture of lines, boxes and texts, written as SVG that a page takes its colours and fonts to.

use std::fmt::Write;

use super::escape::html;

/// How large a picture is, in the page's own pixels: pictures are drawn twice, for wide pages and for telephones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    /// From left to right.
    pub(super) width: f64,
    /// Whether it is for a telephone.
    pub(super) is_narrow: bool,
}

/// For pages from about 700 pixels on.
pub(super) const WIDE: Frame = Frame { width: 800.0, is_narrow: false };
/// For narrower ones.
pub(super) const NARROW: Frame = Frame { width: 350.0, is_narrow: true };

/// Where a text stands relative to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// It begins there.
    Start,
    /// It is centred there.
    Middle,
    /// It ends there.
    End,
}

/// A picture that grows.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// A straight line.
    pub(super) fn line(&mut self, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    /// A box.
    pub(super) fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4]) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
    }

    /// Lines from point to point.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        if points.len() < 2 {
            return;
        }
        let _ = write!(self.body, r#"<polyline class="{class}" points=""#);
        for (number, (x, y)) in points.iter().enumerate() {
            let gap = if number == 0 { "" } else { " " };
            let _ = write!(self.body, "{gap}{x:.1},{y:.1}");
        }
        self.body.push_str("\"/>");
    }

    /// A dot; its shape tells lines of one colour apart.
    pub(super) fn dot(&mut self, class: &str, shape: usize, (x, y): (f64, f64), radius: f64) {
        let _ = match shape % 4 {
            0 => write!(self.body, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#),
            1 => {
                let side = radius * 1.8;
                let (left, top) = (x - side / 2.0, y - side / 2.0);
                let sides = format!(r#"x="{left:.1}" y="{top:.1}" width="{side:.1}" height="{side:.1}""#);
                write!(self.body, r#"<rect class="{class}" {sides}/>"#)
            }
            2 => {
                let (wide, up, down) = (radius * 1.15, y - radius * 1.2, y + radius * 0.9);
                let (left, right) = (x - wide, x + wide);
                let corners = format!("{x:.1},{up:.1} {right:.1},{down:.1} {left:.1},{down:.1}");
                write!(self.body, r#"<polygon class="{class}" points="{corners}"/>"#)
            }
            _ => {
                let reach = radius * 1.3;
                let (left, right, up, down) = (x - reach, x + reach, y - reach, y + reach);
                let corners = format!("{x:.1},{up:.1} {right:.1},{y:.1} {x:.1},{down:.1} {left:.1},{y:.1}");
                write!(self.body, r#"<polygon class="{class}" points="{corners}"/>"#)
            }
        };
    }

    /// A text.
    pub(super) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = html(text);
        let _ = write!(
            self.body,
            r#"<text class="{class}" text-anchor="{anchor}" x="{x:.1}" y="{y:.1}">{text}</text>"#
        );
    }

    /// What is drawn by `draw` explains itself with a text when it is pointed at.
    pub(super) fn tip(&mut self, text: &str, draw: impl FnOnce(&mut Self)) {
        let _ = write!(self.body, "<g class=\"tip\"><title>{}</title>", html(text));
        draw(self);
        self.body.push_str("</g>");
    }

    /// A small element that says nothing by itself, as in a legend.
    pub(super) fn sign(self, width: f64, height: f64) -> String {
        format!(r#"<svg aria-hidden="true" viewBox="0 0 {width:.0} {height:.0}">{}</svg>"#, self.body)
    }

    /// The element, with what somebody who can't see it must know.
    pub(super) fn finish(self, frame: Frame, height: f64, alt: &str) -> String {
        let class = if frame.is_narrow { "narrow" } else { "wide" };
        format!(
            r#"<svg class="{class}" role="img" aria-label="{}" viewBox="0 0 {:.0} {height:.0}" xmlns="http://www.w3.org/2000/svg">{}</svg>"#,
            html(alt),
            frame.width,
            self.body
        )
    }
}

/// About how wide a text is in the size of ticks, and rather more than less.
pub(super) fn text_width(text: &str) -> f64 {
    6.9 * super::scale::usize_as_f64(text.chars().count())
}

/// About how wide a text is in the size of names, which are larger.
pub(super) fn name_width(text: &str) -> f64 {
    7.9 * super::scale::usize_as_f64(text.chars().count())
}

/// The name, or as much of it as has room, with an ellipsis.
pub(super) fn fitted(name: &str, width: f64) -> String {
    if name_width(name) <= width {
        return name.to_string();
    }
    let mut kept: String = name.to_string();
    while !kept.is_empty() && name_width(&kept) + 8.0 > width {
        kept.pop();
    }
    format!("{}…", kept.trim_end())
}
