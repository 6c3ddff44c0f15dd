//! JSON Schemas for results.

#[cfg(feature = "schema")]
mod validator;
#[cfg(not(feature = "schema"))]
#[path = "schema/no_validator.rs"]
mod validator;

use brigade_core::json;
use serde_json::Value;

use validator::Validator;

/// JSON Schema for the result of a session. References must stay within the schema. Nothing is fetched. Without the
/// feature `schema` every schema is refused.
///
/// ```
/// # #[cfg(feature = "schema")] {
/// use brigade_runtime::ResultSchema;
///
/// let schema = ResultSchema::parse(r#"{ "type": "object", "required": ["n"] }"#)?;
/// assert_eq!(schema.validate(r#"{ "n": 1 }"#).as_deref(), Ok(r#"{"n":1}"#));
/// assert!(schema.validate("one").is_err());
/// assert!(ResultSchema::parse(r#"{ "$ref": "https://example.com/n.json" }"#).is_err());
/// # }
/// # Ok::<(), brigade_runtime::SchemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultSchema(String);

/// Reason why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// The JSON is not an object.
    #[error("expected a JSON Schema object")]
    NotAnObject,
    /// The schema refers to another document.
    #[error(
        "it refers to {0}, but references to other documents are not followed. Copy the definition into the schema's `$defs`"
    )]
    Remote(String),
    /// The schema is not valid JSON Schema.
    #[error("it is not a valid JSON Schema: {0}")]
    Invalid(String),
    /// The feature `schema` is disabled.
    #[error("this program was built without support for JSON Schema. Build it with the feature `schema`.")]
    Unsupported,
}

/// Reason why a text does not match a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValidationError {
    /// The schema cannot be used.
    #[error("cannot use the schema: {0}")]
    Schema(#[from] SchemaError),
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// The JSON does not match.
    #[error("{0}")]
    Mismatch(String),
}

impl ResultSchema {
    /// Parses and checks a schema.
    pub fn parse(text: &str) -> Result<ResultSchema, SchemaError> {
        validator(text)?;
        Ok(ResultSchema(text.to_owned()))
    }

    /// Returns the schema as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the JSON in a text on one line, or a validation error. The JSON may be in a fenced code block.
    pub fn validate(&self, text: &str) -> Result<String, ValidationError> {
        let validator = validator(&self.0)?;
        let value = json::parse(strip_code_fence(text))
            .map_err(|cause| ValidationError::NotJson(cause.to_string()))?;
        match validator.error(&value) {
            None => Ok(value.to_string()),
            Some(error) => Err(ValidationError::Mismatch(error)),
        }
    }
}

fn validator(text: &str) -> Result<Validator, SchemaError> {
    let schema: Value = json::parse(text).map_err(|error| SchemaError::NotJson(error.to_string()))?;
    if !schema.is_object() {
        return Err(SchemaError::NotAnObject);
    }
    Validator::new(&schema)
}

/// Removes a fenced code block around JSON, which models often add.
fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner)).trim()
}

#[cfg(feature = "schema")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_that_lead_elsewhere_are_refused() {
        let refused = |text: &str| ResultSchema::parse(text).unwrap_err();
        for (text, uri) in [
            (r#"{"$ref": "https://example.com/a.json"}"#, "https://example.com/a.json"),
            (
                r#"{"properties": {"a": {"$ref": "https://example.com/a.json#/b"}}}"#,
                "https://example.com/a.json",
            ),
            (r#"{"$ref": "file:///etc/passwd"}"#, "file:///etc/passwd"),
            (r#"{"$ref": "other.json"}"#, "other.json"),
        ] {
            let SchemaError::Remote(shown) = refused(text) else { panic!("{text}: {:?}", refused(text)) };
            assert!(shown.ends_with(uri), "{text}: {shown}");
        }
    }

    #[test]
    fn references_within_a_schema_are_followed() {
        let schema = r##"{
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://example.com/report",
            "$ref": "#/$defs/report",
            "$defs": { "report": { "type": "object", "required": ["n"] } }
        }"##;
        let schema = ResultSchema::parse(schema).unwrap();
        assert_eq!(schema.validate("```json\n{\"n\": 1}\n```"), Ok(r#"{"n":1}"#.to_owned()));
        assert!(schema.validate("{}").unwrap_err().to_string().contains("\"n\" is a required property"));
    }

    #[test]
    fn invalid_schemas_are_refused() {
        assert!(matches!(ResultSchema::parse("{"), Err(SchemaError::NotJson(_))));
        assert!(matches!(ResultSchema::parse(r#"{"a": 1, "a": 2}"#), Err(SchemaError::NotJson(_))));
        assert_eq!(ResultSchema::parse("[]"), Err(SchemaError::NotAnObject));
        assert!(matches!(ResultSchema::parse(r#"{"type": "nonsense"}"#), Err(SchemaError::Invalid(_))));
        assert!(matches!(ResultSchema::parse(r##"{"$ref": "#/$defs/none"}"##), Err(SchemaError::Invalid(_))));
    }
}
