//! Manual page about metrics, generated from the [`super::catalog`].

use super::catalog::ALL;
use super::instrument::{Instrument, Kind, Plane, label};
use std::fmt::Write;

/// Path of the page, relative to the repository.
pub const PAGE: &str = "deploy/docs/metrics.md";

const HEAD: &str = include_str!("manual.md");

/// Renders the page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let planes = [
        (Plane::All, "Every process"),
        (Plane::Activator, "Activator"),
        (Plane::Autoscaler, "Autoscaler"),
        (Plane::Hpa, "HorizontalPodAutoscaler controller"),
    ];
    for (plane, title) in planes {
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "\n## {title}\n\n| Prometheus | OpenTelemetry | type | unit | attributes | meaning | since |\n"
        );
        page.push_str("|---|---|---|---|---|---|---|\n");
        let listed = || ALL.iter().filter(|instrument| instrument.plane == plane);
        listed().for_each(|instrument| row(instrument, &mut page));
        listed()
            .filter(|instrument| !instrument.values.is_empty())
            .for_each(|instrument| values(instrument, &mut page));
    }
    page
}

fn values(instrument: &Instrument, page: &mut String) {
    let attribute = instrument.attributes.last().map(|attribute| label(attribute)).unwrap_or_default();
    // Writing to a String cannot fail.
    let _ = writeln!(page, "\n`{attribute}` of `{}`:\n\n| value | meaning |\n|---|---|", instrument.prometheus());
    for (value, meaning) in instrument.values {
        let _ = writeln!(page, "| `{value}` | {meaning} |");
    }
}

fn row(instrument: &Instrument, page: &mut String) {
    let Instrument { name, kind, unit, attributes, meaning, since, .. } = instrument;
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter => "gauge (a sum that may fall)",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let attributes: Vec<String> = attributes.iter().map(|attribute| code(&label(attribute))).collect();
    let prometheus = instrument.prometheus();
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "| `{prometheus}` | `{name}` | {kind} | {} | {} | {meaning} | {since} |",
        code(unit),
        attributes.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the page in the repository matches the code. Remedy: the command in its first line.
    #[test]
    fn the_manuals_page_matches_the_catalog() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
        assert_eq!(std::fs::read_to_string(path).expect(PAGE), page());
    }
}
