//! Counters as both programs keep and tell them: durations in buckets, and the text form of Prometheus.
//!
//! Labels are closed words and numbers, never a text of anybody's.

use std::fmt::{Display, Write as _};

use serde::{Deserialize, Serialize};

/// The upper ends of the buckets, in milliseconds. Beyond the last there is one more.
pub const BUCKETS: [u64; 9] = [10, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000];

/// How long things took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Durations {
    /// How many took no longer than each of [`BUCKETS`].
    pub at_most: [u64; BUCKETS.len()],
    /// How many there were.
    pub count: u64,
    /// All of them together, in milliseconds.
    pub sum_ms: u64,
}

impl Durations {
    /// Counts one.
    pub fn add(&mut self, ms: u64) {
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
        for (bucket, end) in self.at_most.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(ms <= end);
        }
    }
}

/// A page in the text form of Prometheus.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Something that only grows, by one label.
    pub fn counter<L: Display>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.head(name, help, "counter");
        for (value, count) in counts {
            let _ = writeln!(self.0, "{name}{{{label}=\"{value}\"}} {count}");
        }
    }

    /// Something that only grows, by two labels.
    pub fn counter_by_two<A: Display, B: Display>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; 2],
        counts: impl IntoIterator<Item = (A, B, u64)>,
    ) {
        self.head(name, help, "counter");
        let [first, second] = labels;
        for (a, b, count) in counts {
            let _ = writeln!(self.0, "{name}{{{first}=\"{a}\",{second}=\"{b}\"}} {count}");
        }
    }

    /// Something that only grows.
    pub fn total(&mut self, name: &str, help: &str, count: u64) {
        self.head(name, help, "counter");
        let _ = writeln!(self.0, "{name} {count}");
    }

    /// Something that comes and goes.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// How long things took.
    pub fn durations(&mut self, name: &str, help: &str, durations: &Durations) {
        self.head(name, help, "histogram");
        for (count, end) in durations.at_most.iter().zip(BUCKETS) {
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{end}\"}} {count}");
        }
        let Durations { count, sum_ms, .. } = durations;
        let _ = writeln!(self.0, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(self.0, "{name}_sum {sum_ms}\n{name}_count {count}");
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// The text.
    #[must_use]
    pub fn text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Durations, Page};

    #[test]
    fn a_page_has_a_head_per_name_and_buckets_that_add_up() {
        let mut took = Durations::default();
        for ms in [5, 10, 11, 1_000_000] {
            took.add(ms);
        }
        let mut page = Page::default();
        page.counter("a_total", "A.", "code", [("busy", 2), ("stopped", 1)]);
        page.counter_by_two("b_total", "B.", ["tool", "outcome"], [("git_log", "done", 3)]);
        page.total("c_total", "C.", 4);
        page.gauge("d", "D.", 5);
        page.durations("e_ms", "E.", &took);
        let text = page.text();
        for line in [
            "# TYPE a_total counter",
            "a_total{code=\"busy\"} 2",
            "b_total{tool=\"git_log\",outcome=\"done\"} 3",
            "c_total 4",
            "# TYPE d gauge",
            "e_ms_bucket{le=\"10\"} 2",
            "e_ms_bucket{le=\"100\"} 3",
            "e_ms_bucket{le=\"300000\"} 3",
            "e_ms_bucket{le=\"+Inf\"} 4",
            "e_ms_sum 1000026",
            "e_ms_count 4",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}:\n{text}");
        }
    }
}
