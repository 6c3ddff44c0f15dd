//! Parsing of lines. An invalid line is answered with an error, because its sender waits for a response.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage};
use serde_json::{Map, Value, json};

use crate::server::methods;

/// A parsed line.
pub(super) enum ParsedLine {
    Message(Box<ClientJsonRpcMessage>),
    /// An invalid message, with the error response.
    Invalid(Value),
    /// A message that expects no response.
    Ignored,
}

/// Maximum length of a line.
pub(super) const MAX_LINE_BYTES: usize = 4 << 20;
/// Some programs write it before their output.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Parses a line.
pub(super) fn parse_line(line: &[u8]) -> ParsedLine {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return ParsedLine::Ignored;
    }
    match serde_json::from_slice::<ClientJsonRpcMessage>(line) {
        Ok(message) => check_initialize(message),
        Err(_) => match serde_json::from_slice(line) {
            Ok(Value::Object(message)) => diagnose_object(&message),
            Ok(Value::Array(_)) => invalid_request(
                &Value::Null,
                "batches are not supported; send each message on a separate line",
            ),
            Ok(_) => invalid_request(&Value::Null, "a message must be a JSON object"),
            Err(error) => {
                let text = format!("the line is not JSON: {error}");
                error_response(&Value::Null, &ErrorData::new(ErrorCode::PARSE_ERROR, text, None))
            }
        },
    }
}

/// The error for a line over the limit.
pub(super) fn too_long() -> ParsedLine {
    let text =
        format!("the message exceeds the limit of {} MiB ({MAX_LINE_BYTES} bytes)", MAX_LINE_BYTES >> 20);
    invalid_request(&Value::Null, &text)
}

/// Rejects an invalid `initialize`. The library would treat it as a request of a client without sessions and
/// report misleading errors.
fn check_initialize(message: ClientJsonRpcMessage) -> ParsedLine {
    if let JsonRpcMessage::Request(request) = &message
        && let ClientRequest::CustomRequest(custom) = &request.request
        && custom.method == "initialize"
    {
        return error_response(&json!(request.id), &methods::refusal(custom));
    }
    ParsedLine::Message(Box::new(message))
}

/// Explains why an object is not a valid message.
fn diagnose_object(message: &Map<String, Value>) -> ParsedLine {
    let (id, method) = (message.get("id"), message.get("method"));
    let is_answer = message.contains_key("result") || message.contains_key("error");
    let has_version = message.get("jsonrpc").is_some_and(|version| version == "2.0");
    let is_notification = id.is_none()
        && method
            .and_then(Value::as_str)
            .is_some_and(|name| has_version || name.starts_with("notifications/"));
    // Responding to responses would never end.
    if is_notification || (is_answer && method.is_none()) {
        return ParsedLine::Ignored;
    }
    let text = match (method, message.get("params")) {
        _ if !has_version => r#"`jsonrpc` must be "2.0""#,
        _ if !id.is_some_and(|id| id.is_string() || id.is_i64()) => "`id` must be a string or an integer",
        (None, _) => "`method` is missing",
        (Some(method), _) if !method.is_string() => "`method` must be a string",
        _ if is_answer => "a message with `method` must not have `result` or `error`",
        (_, Some(params)) if !params.is_object() => "`params` must be an object",
        _ => "not a valid MCP request",
    };
    invalid_request(id.unwrap_or(&Value::Null), text)
}

fn invalid_request(id: &Value, text: &str) -> ParsedLine {
    error_response(id, &ErrorData::invalid_request(text.to_owned(), None))
}

fn error_response(id: &Value, error: &ErrorData) -> ParsedLine {
    let id = if id.is_string() || id.is_number() { id } else { &Value::Null };
    ParsedLine::Invalid(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code, id and message of the error response.
    #[track_caller]
    fn refused(line: &str) -> (i64, Value, String) {
        let ParsedLine::Invalid(answer) = parse_line(line.as_bytes()) else {
            panic!("{line} is not refused")
        };
        let text = answer["error"]["message"].as_str().unwrap().to_owned();
        (answer["error"]["code"].as_i64().unwrap(), answer["id"].clone(), text)
    }

    #[test]
    fn invalid_request_is_refused_with_its_id_and_the_cause() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":31,"method":"tools/call","params":[]}"#, json!(31), "params"),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":"x"}"#, json!("a"), "params"),
            (r#"{"jsonrpc":"2.0","id":77}"#, json!(77), "`method` is missing"),
            (r#"{"id":77}"#, json!(77), "jsonrpc"),
            (r#"{"id":5,"method":"tools/list"}"#, json!(5), "jsonrpc"),
            (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, json!(5), "`method` must be"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#, json!(1.5), "integer"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, Value::Null, "integer"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null, "batches"),
            ("7", Value::Null, "object"),
        ];
        for (line, id, cause) in cases {
            let (code, named, text) = refused(line);
            assert_eq!((code, named), (-32600, id), "{line}");
            assert!(text.contains(cause), "{line}: {text}");
        }
    }

    #[test]
    fn malformed_json_is_a_parse_error() {
        for line in
            [&b"{bad json"[..], b"\xff\xfe\x00", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"]
        {
            let ParsedLine::Invalid(answer) = parse_line(line) else { panic!("{line:?} is not refused") };
            assert!(answer["error"]["code"] == -32700 && answer["id"].is_null(), "{answer}");
            assert!(answer.as_object().unwrap().contains_key("id"));
        }
    }

    #[test]
    fn notifications_and_responses_get_no_reply() {
        let quiet = [
            "",
            "  \r",
            r#"{"method":"notifications/strange"}"#,
            r#"{"jsonrpc":"2.0","method":"$/odd","params":[1]}"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":{},"error":"x"}"#,
        ];
        for line in quiet {
            assert!(matches!(parse_line(line.as_bytes()), ParsedLine::Ignored), "{line}");
        }
        // The error response of a peer that could not parse a line either.
        let ParsedLine::Invalid(answer) = parse_line(b"{") else { panic!("it is not refused") };
        assert!(!matches!(parse_line(answer.to_string().as_bytes()), ParsedLine::Invalid(_)));
    }

    #[test]
    fn message_is_parsed_despite_bom_and_whitespace() {
        for line in [
            &b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"[..],
            b" {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r",
        ] {
            assert!(matches!(parse_line(line), ParsedLine::Message(_)), "{line:?}");
        }
    }
}
