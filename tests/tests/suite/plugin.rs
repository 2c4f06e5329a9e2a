//! The shared library: what the connectors runtime looks up in it.

use std::collections::BTreeSet;
use std::fs;

use e2e::binaries;
use object::{Object, ObjectSymbol};

/// Runtime 0.5.0's, and with `iggy_source_handle` also runtime 0.4.0's.
const SYMBOLS: [&str; 10] = [
    "iggy_source_open",
    "iggy_source_handle",
    "iggy_source_handle_v2",
    "iggy_source_batch_result",
    "iggy_source_close",
    "iggy_source_version",
    "iggy_sink_open",
    "iggy_sink_consume",
    "iggy_sink_close",
    "iggy_sink_version",
];

#[test]
fn the_plugin_exports_what_the_runtime_looks_up_as_a_source_and_as_a_sink() {
    let library = fs::read(binaries::plugin()).unwrap();
    let file = object::File::parse(&*library).unwrap();
    let exported: BTreeSet<&str> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    let missing: Vec<&str> = SYMBOLS
        .into_iter()
        .filter(|symbol| !exported.contains(symbol))
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    let unknown: Vec<&&str> = exported
        .iter()
        .filter(|symbol| symbol.starts_with("iggy_") && !SYMBOLS.contains(symbol))
        .collect();
    assert!(unknown.is_empty(), "exported but unknown: {unknown:?}");
}
