// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run found out: a record of each trial, and the result that every report is made from.

pub(crate) mod assemble;
pub(crate) mod difference;
pub(crate) mod result;
pub(crate) mod trial;
