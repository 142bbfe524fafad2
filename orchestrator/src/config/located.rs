// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values with their place in the file, so that a check made long after reading can still point at
//! what was typed.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_yaml::Spanned;

/// A place in the file: line and column from 1, and how many characters it covers. The length is 0
/// where YAML gives only a beginning, such as that of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) length: usize,
}

impl From<serde_yaml::Location> for Mark {
    fn from(location: serde_yaml::Location) -> Self {
        let at_least_one = |number| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self {
            line: at_least_one(location.line()),
            column: at_least_one(location.column()),
            length: usize::try_from(location.span().len()).unwrap_or(0),
        }
    }
}

/// A value and where it stands. Two are equal when their values are.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) mark: Mark,
}

impl<T> Located<T> {
    /// A value that no one typed. No check refuses a default, so its place is never shown.
    pub(super) fn default_of(value: T) -> Self {
        Self { value, mark: Mark { line: 1, column: 1, length: 0 } }
    }

    /// The value as if it stood elsewhere.
    pub(super) fn moved_to(self, mark: Mark) -> Self {
        Self { value: self.value, mark }
    }
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Located<T> {}

impl<T: Hash> Hash for Located<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, mark: spanned.referenced.into() })
    }
}

/// Only the schema needs this, to show defaults.
impl<T: Serialize> Serialize for Located<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// A key that may be left out. Unlike an [`Option`], it does not take an empty value for an absent
/// one: `patches:` with nothing behind it is a mistake, not a wish for none.
#[derive(Clone, Debug)]
pub(super) struct Maybe<T>(pub(super) Option<T>);

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

/// To an editor both are the value itself.
macro_rules! schema_of_the_value {
    ($wrapper:ident) => {
        impl<T: JsonSchema> JsonSchema for $wrapper<T> {
            fn inline_schema() -> bool {
                T::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                T::schema_name()
            }

            fn schema_id() -> Cow<'static, str> {
                T::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                T::json_schema(generator)
            }
        }
    };
}

schema_of_the_value!(Located);
schema_of_the_value!(Maybe);
