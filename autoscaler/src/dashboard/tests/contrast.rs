//! Test of the page's colours: the contrasts in light and dark meet the ratios of WCAG 2, level AA.

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../page/style.css");
/// Colours of text, of marks, and of their backgrounds.
const TEXTS: [&str; 6] = ["ink", "quiet", "accent", "problem", "awake", "waking"];
const MARKS: [&str; 16] = [
    "asleep", "falling", "unknown", "focus", "load", "held", "pods", "wanted", "panic", "phase-1", "phase-2",
    "phase-3", "phase-4", "phase-5", "awake", "waking",
];
const GROUNDS: [&str; 3] = ["ground", "card", "raised"];

fn colours(nth: usize) -> BTreeMap<&'static str, f64> {
    let block = STYLE.split(":root {").nth(nth).and_then(|rest| rest.split('}').next()).expect("a block");
    let named = block.split(';').filter_map(|line| line.trim().strip_prefix("--")?.split_once(": #"));
    named.filter_map(|(name, hex)| Some((name, luminance(u32::from_str_radix(hex, 16).ok()?)))).collect()
}

fn luminance(rgb: u32) -> f64 {
    let channel = |shift: u32| {
        let value = f64::from((rgb >> shift) & 0xff) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(16) + 0.7152 * channel(8) + 0.0722 * channel(0)
}

fn ratio(a: f64, b: f64) -> f64 {
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_have_enough_contrast() {
    let light = colours(1);
    let dark: BTreeMap<_, _> = light.clone().into_iter().chain(colours(2)).collect();
    assert!((ratio(luminance(0xff_ff_ff), luminance(0)) - 21.0).abs() < 1e-9);
    for (scheme, colours) in [("light", light), ("dark", dark)] {
        let enough = |inks: &[&str], least: f64| {
            for (ink, ground) in inks.iter().flat_map(|ink| GROUNDS.map(|ground| (*ink, ground))) {
                let found = ratio(colours[ink], colours[ground]);
                assert!(found >= least, "{scheme}: {ink} on {ground} has {found:.2} of {least}");
            }
        };
        enough(&TEXTS, 4.5);
        enough(&MARKS, 3.0);
        assert!(ratio(colours["card"], colours["accent"]) >= 4.5, "{scheme}: the button");
    }
}
