// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot cache`.

use std::fmt::Write as _;

use clap::Args;

use super::output;
use crate::cache::Cache;
use crate::error::Error;
use crate::exit::Exit;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Remove what was not used for longest until the rest is at most this many GiB; without a number, the limit
    #[arg(long, value_name = "GIB", num_args = 0..=1)]
    prune: Option<Option<u64>>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn cache(arguments: &Arguments) -> Result<Exit, Error> {
    let cache = Cache::open()?;
    if let Some(limit) = arguments.prune {
        let removed = cache.prune(limit.map_or_else(Cache::limit, |gib| gib << 30))?;
        let bytes: u64 = removed.iter().map(|entry| entry.bytes).sum();
        crate::ui::say(&format!("removed {} entries, {} MiB", removed.len(), bytes >> 20));
    }
    let entries = cache.entries()?;
    if arguments.json {
        let rows: Vec<_> = entries
            .iter()
            .map(|entry| serde_json::json!({ "path": entry.path, "bytes": entry.bytes }))
            .collect();
        let limit = Cache::limit();
        output::print_json(&serde_json::json!({ "root": cache.root(), "limit": limit, "entries": rows }))?;
        return Ok(Exit::NoRegression);
    }
    let mut text = String::new();
    for entry in &entries {
        let _ = writeln!(text, "{:>6} MiB  {}", entry.bytes >> 20, entry.path.display());
    }
    let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let limit = Cache::limit() >> 30;
    let _ = writeln!(text, "{:>6} MiB  in all; the limit is {limit} GiB (TWINBOOT_CACHE_SIZE)", total >> 20);
    output::print(&text)?;
    Ok(Exit::NoRegression)
}
