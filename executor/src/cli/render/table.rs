//! Columns that fit the width: all but the last are as wide as they need to be, and the last gives.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::cli::paint::{Look, Paper};

/// The narrowest that the last column gets.
const LEAST: usize = 20;

/// Rows of cells, each with its look.
#[derive(Debug, Default)]
pub(super) struct Table<const N: usize> {
    rows: Vec<[(Option<Look>, String); N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// A row; its texts are printable already.
    pub(super) fn row(&mut self, cells: [(Option<Look>, String); N]) {
        self.rows.push(cells);
    }

    /// The lines, each behind an indent.
    pub(super) fn print(&self, paper: Paper, indent: &str) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, (_, text)) in widths.iter_mut().zip(row) {
                *width = (*width).max(text.width());
            }
        }
        let before: usize = widths.iter().take(N - 1).map(|width| width + 2).sum();
        let last = paper.width.map(|all| all.saturating_sub(before + indent.len()).max(LEAST));
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (at, (look, cell)) in row.iter().enumerate() {
                let cell = match last {
                    Some(room) if at == N - 1 => fit(cell, room),
                    _ => cell.clone(),
                };
                let gap = if at == N - 1 { 0 } else { widths[at] - cell.width() + 2 };
                line.push_str(&look.map_or(cell.clone(), |look| paper.paint(look, &cell)));
                line.extend(std::iter::repeat_n(' ', gap));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The text, cut to so many columns.
pub(super) fn fit(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut width = 0;
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width + 1 > room {
            break;
        }
        shown.push(c);
    }
    shown + "…"
}

#[cfg(test)]
mod tests {
    use super::{Paper, Table, fit};

    #[test]
    fn columns_line_up_by_their_width_on_a_terminal_and_the_last_is_cut_to_fit() {
        let mut table = Table::<2>::new();
        table.row([(None, "決定".to_owned()), (None, "x".repeat(40))]);
        table.row([(None, "a".to_owned()), (None, "short".to_owned())]);
        let wide = table.print(Paper::PLAIN, "");
        assert_eq!(wide, format!("決定  {}\na     short\n", "x".repeat(40)));
        let narrow = table.print(Paper { colours: false, width: Some(30) }, "");
        assert_eq!(narrow, format!("決定  {}…\na     short\n", "x".repeat(23)));
    }

    #[test]
    fn a_wide_character_is_never_cut_in_half() {
        assert_eq!(fit("決定決定", 4), "決…");
        assert_eq!(fit("決定", 4), "決定");
    }
}
