// SPDX-License-Identifier: MIT OR Apache-2.0
//! The experiment file's structure as a JSON schema, for editors. It is derived from the very types that
//! read the file; what only `check` can know (CPUs within the topology, names of workloads) is not in it.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::raw;

/// The schema, in the draft that editors' YAML support knows best.
pub(crate) fn schema() -> Value {
    SchemaSettings::draft07().into_generator().into_root_schema_for::<raw::Experiment>().to_value()
}
