//! Plots as SVG: rows relative to their bounds, and absolute figures next to those of peers.

use super::{BoundKind, Row, short, spread};
use crate::settings::quantile;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
/// Coordinate at which texts end and the plot begins.
const LEFT: f64 = 260.0;
const LINE: f64 = 22.0;
/// Right end of the plot, as a multiple of the bound.
const AXIS_MAX: f64 = 2.0;

const OURS: &str = "#2a6fb0";
const OTHERS: &str = "#9aa5b1";
const SHORT: &str = "#c0392b";
const TEXT: &str = "#333";

/// A row relative to its required bound: 1 is just sufficient, and less is better.
pub(super) struct Dot {
    name: &'static str,
    /// Minimum, judged quantile and maximum, each relative to the bound.
    parts: [f64; 3],
    aim: f64,
}

impl Dot {
    pub(super) fn new(row: &Row, samples: &[f64]) -> Self {
        let part = |value: f64| match row.bound_kind {
            BoundKind::AtMost => value / row.must,
            BoundKind::AtLeast => row.must / value,
        };
        let [least, _, greatest] = spread(samples);
        let parts = [least, quantile(samples, row.judged), greatest].map(part);
        Self { name: row.name, parts, aim: part(row.aim) }
    }
}

/// Draws one line per row: its spread, its judged value, the bound at 1, and the aim.
pub(super) fn dots(dots: &[Dot]) -> String {
    let at = |part: f64| LEFT + (WIDTH - LEFT - 20.0) * part.clamp(0.0, AXIS_MAX) / AXIS_MAX;
    let height = 40.0 + LINE * dots.len() as f64;
    let mut svg = begin(height);
    text(&mut svg, at(1.0), 18.0, "middle", "must = 1; shorter is better");
    line(&mut svg, (at(1.0), 26.0), (at(1.0), height - 6.0), SHORT, 1.0);
    for (n, dot) in dots.iter().enumerate() {
        let y = 40.0 + LINE * n as f64;
        let [a, judged, b] = dot.parts.map(at);
        let colour = if dot.parts[1] <= 1.0 { OURS } else { SHORT };
        text(&mut svg, LEFT - 10.0, y + 4.0, "end", dot.name);
        line(&mut svg, (at(dot.aim), y - 6.0), (at(dot.aim), y + 6.0), OTHERS, 2.0);
        line(&mut svg, (a, y), (b, y), colour, 2.0);
        let _ = writeln!(svg, r#"<circle cx="{judged:.1}" cy="{y:.1}" r="4" fill="{colour}"/>"#);
    }
    svg + "</svg>\n"
}

/// Name of a target, and its minimum, median and maximum.
pub(super) struct Bar<'a> {
    pub(super) target: &'a str,
    pub(super) spread: [f64; 3],
}

/// Figures of one kind.
pub(super) struct Group<'a> {
    pub(super) what: &'a str,
    pub(super) bars: Vec<Bar<'a>>,
}

/// Draws the groups below each other, each with its own axis that begins at 0.
pub(super) fn bars(groups: &[Group<'_>]) -> String {
    let lines: usize = groups.iter().map(|group| group.bars.len() + 2).sum();
    let mut svg = begin(10.0 + LINE * lines as f64);
    let mut y = 24.0;
    for group in groups {
        let most = group.bars.iter().map(|bar| bar.spread[2]).fold(f64::MIN_POSITIVE, f64::max);
        let at = |value: f64| LEFT + (WIDTH - LEFT - 90.0) * (value / most).clamp(0.0, 1.0);
        text(&mut svg, LEFT, y, "start", group.what);
        for bar in &group.bars {
            y += LINE;
            let [least, median, greatest] = bar.spread;
            let colour = if is_ours(bar.target) { OURS } else { OTHERS };
            text(&mut svg, LEFT - 10.0, y, "end", bar.target);
            let (top, width) = (y - 12.0, at(median) - LEFT);
            let _ = writeln!(svg, r#"<rect x="{LEFT}" y="{top:.1}" width="{width:.1}" height="14" fill="{colour}"/>"#);
            line(&mut svg, (at(least), y - 5.0), (at(greatest), y - 5.0), TEXT, 1.5);
            text(&mut svg, at(greatest) + 8.0, y, "start", &short(median));
        }
        y += 2.0 * LINE;
    }
    svg + "</svg>\n"
}

fn is_ours(target: &str) -> bool {
    target.starts_with("activator") || target.starts_with("autoscaler") || target.starts_with("ours")
}

fn begin(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    )
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{TEXT}">{escaped}</text>"#);
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
    let ((a, b), (c, d)) = (from, to);
    let _ = writeln!(
        svg,
        r#"<line x1="{a:.1}" y1="{b:.1}" x2="{c:.1}" y2="{d:.1}" stroke="{colour}" stroke-width="{width}"/>"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_relative_to_the_required_bound_and_smaller_is_better() {
        let small = Dot::new(&Row::at_most("", "", "", 2.0, 1.0), &[1.0, 2.0, 3.0]);
        assert_eq!((small.parts, small.aim), ([0.5, 1.0, 1.5], 0.5));
        let large = Dot::new(&Row::at_least("", "", "", 1.0, 2.0), &[0.5, 1.0, 2.0]);
        assert_eq!((large.parts, large.aim), ([2.0, 1.0, 0.5], 0.5));
    }

    #[test]
    fn texts_are_escaped() {
        let group = Group { what: "a<b & c", bars: vec![Bar { target: "x", spread: [1.0; 3] }] };
        assert!(bars(&[group]).contains("a&lt;b &amp; c"));
    }
}
