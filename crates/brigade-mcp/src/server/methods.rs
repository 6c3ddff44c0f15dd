//! Errors for unknown methods and invalid parameters.

use rmcp::model::{
    CallToolRequestParams, CancelTaskParams, CustomRequest, ErrorCode, ErrorData, GetTaskParams,
    InitializeRequestParams, PaginatedRequestParams,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::server::text;

/// Returns the error for a request that matches no supported method.
pub(crate) fn refusal(request: &CustomRequest) -> ErrorData {
    let cause = match request.method.as_str() {
        "initialize" => params_error::<InitializeRequestParams>(request),
        "tools/call" => params_error::<CallToolRequestParams>(request)
            .map(|cause| format!("{cause}; expected `name` (string) and `arguments` (object)")),
        "tools/list" => params_error::<PaginatedRequestParams>(request),
        "tasks/get" => params_error::<GetTaskParams>(request),
        "tasks/cancel" => params_error::<CancelTaskParams>(request),
        _ => None,
    };
    match cause {
        Some(cause) => ErrorData::invalid_params(format!("{}: {cause}", request.method), None),
        None => not_offered(&request.method),
    }
}

/// Returns the error for an unknown method.
pub(crate) fn not_offered(method: &str) -> ErrorData {
    let message = format!("Unknown method: {}; this server supports only tools", text::one_line(method, 64));
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
}

/// Explains what is wrong with the parameters of a method.
fn params_error<P: DeserializeOwned>(request: &CustomRequest) -> Option<String> {
    let params = request.params.clone().unwrap_or_else(|| json!({}));
    let cause =
        serde_json::from_value::<P>(params).err().map(|error| text::one_line(&error.to_string(), 200));
    Some(cause.unwrap_or_else(|| "invalid params".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_params_and_unknown_methods_are_refused_with_a_cause() {
        let refused = |method: &str, params| refusal(&CustomRequest::new(method, params));
        let nameless = refused("tools/call", Some(json!({ "arguments": {} })));
        assert_eq!(nameless.code, ErrorCode::INVALID_PARAMS);
        assert!(nameless.message.contains("missing field `name`"), "{}", nameless.message);
        let worded = refused("tools/call", Some(json!({ "name": "delegate", "arguments": "x" })));
        assert_eq!(worded.code, ErrorCode::INVALID_PARAMS);
        assert!(worded.message.contains("`arguments` (object)"), "{}", worded.message);
        let unknown = refused("no/such", None);
        assert_eq!(unknown.code, ErrorCode::METHOD_NOT_FOUND);
        assert!(unknown.message.starts_with("Unknown method: no/such;"), "{}", unknown.message);
    }
}
