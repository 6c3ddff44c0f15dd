//! What a line says. One that says nothing sensible is answered all the same: whoever sent it waits for that.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage};
use serde_json::{Map, Value, json};

use super::lines::LONGEST;
use crate::server::methods;

/// What a line says.
pub(super) enum Heard {
    Message(Box<ClientJsonRpcMessage>),
    /// It is answered with this.
    Wrong(Value),
    /// Nobody waits for an answer to it.
    Nothing,
}

/// Some programs put it before what they write.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Reads a line.
pub(super) fn read(line: &[u8]) -> Heard {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Heard::Nothing;
    }
    match serde_json::from_slice::<ClientJsonRpcMessage>(line) {
        Ok(message) => refuse_wrong_greeting(message),
        Err(_) => match serde_json::from_slice(line) {
            Ok(Value::Object(message)) => of_object(&message),
            Ok(Value::Array(_)) => {
                wrong(&Value::Null, "batches are not supported; send each message as a line of its own")
            }
            Ok(_) => wrong(&Value::Null, "a message is a JSON object"),
            Err(error) => {
                let words = format!("the line is not JSON: {error}");
                answer(&Value::Null, &ErrorData::new(ErrorCode::PARSE_ERROR, words, None))
            }
        },
    }
}

/// The answer to a line that is too long to be read.
pub(super) fn too_long() -> Heard {
    let words = format!("the message has more than {} MB ({LONGEST} bytes) and was not read", LONGEST >> 20);
    wrong(&Value::Null, &words)
}

/// A greeting that cannot be read would be taken for one of a client that needs none, and missed for other things.
fn refuse_wrong_greeting(message: ClientJsonRpcMessage) -> Heard {
    if let JsonRpcMessage::Request(request) = &message
        && let ClientRequest::CustomRequest(custom) = &request.request
        && custom.method == "initialize"
    {
        return answer(&json!(request.id), &methods::refusal(custom));
    }
    Heard::Message(Box::new(message))
}

/// What is wrong with an object that is no message.
fn of_object(message: &Map<String, Value>) -> Heard {
    let (id, method) = (message.get("id"), message.get("method"));
    let is_answer = message.contains_key("result") || message.contains_key("error");
    let has_version = message.get("jsonrpc").is_some_and(|version| version == "2.0");
    let is_note = id.is_none()
        && method
            .and_then(Value::as_str)
            .is_some_and(|name| has_version || name.starts_with("notifications/"));
    // Answers to answers would never end.
    if is_note || (is_answer && method.is_none()) {
        return Heard::Nothing;
    }
    let words = match (method, message.get("params")) {
        _ if !has_version => r#"jsonrpc must be "2.0""#,
        _ if !id.is_some_and(|id| id.is_string() || id.is_i64()) => "id must be a string or a whole number",
        (None, _) => "method is missing",
        (Some(method), _) if !method.is_string() => "method must be a string",
        _ if is_answer => "a message with a method has neither result nor error",
        (_, Some(params)) if !params.is_object() => "params must be an object",
        _ => "this is no request of the Model Context Protocol",
    };
    wrong(id.unwrap_or(&Value::Null), words)
}

fn wrong(id: &Value, words: &str) -> Heard {
    answer(id, &ErrorData::invalid_request(words.to_owned(), None))
}

fn answer(id: &Value, error: &ErrorData) -> Heard {
    let id = if id.is_string() || id.is_number() { id } else { &Value::Null };
    Heard::Wrong(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code, the id and the words of the answer.
    #[track_caller]
    fn refused(line: &str) -> (i64, Value, String) {
        let Heard::Wrong(answer) = read(line.as_bytes()) else { panic!("{line} is not refused") };
        let words = answer["error"]["message"].as_str().unwrap().to_owned();
        (answer["error"]["code"].as_i64().unwrap(), answer["id"].clone(), words)
    }

    #[test]
    fn a_wrong_request_is_refused_with_its_id_and_the_cause() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":31,"method":"tools/call","params":[]}"#, json!(31), "params"),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":"x"}"#, json!("a"), "params"),
            (r#"{"jsonrpc":"2.0","id":77}"#, json!(77), "method is missing"),
            (r#"{"id":77}"#, json!(77), "jsonrpc"),
            (r#"{"id":5,"method":"tools/list"}"#, json!(5), "jsonrpc"),
            (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, json!(5), "method must be"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#, json!(1.5), "whole number"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, Value::Null, "whole number"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null, "batches"),
            ("7", Value::Null, "object"),
        ];
        for (line, id, cause) in cases {
            let (code, named, words) = refused(line);
            assert_eq!((code, named), (-32600, id), "{line}");
            assert!(words.contains(cause), "{line}: {words}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused_as_such() {
        for line in
            [&b"{bad json"[..], b"\xff\xfe\x00", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"]
        {
            let Heard::Wrong(answer) = read(line) else { panic!("{line:?} is not refused") };
            assert!(answer["error"]["code"] == -32700 && answer["id"].is_null(), "{answer}");
            assert!(answer.as_object().unwrap().contains_key("id"));
        }
    }

    #[test]
    fn notes_and_answers_are_never_answered() {
        let quiet = [
            "",
            "  \r",
            r#"{"method":"notifications/strange"}"#,
            r#"{"jsonrpc":"2.0","method":"$/odd","params":[1]}"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":{},"error":"x"}"#,
        ];
        for line in quiet {
            assert!(matches!(read(line.as_bytes()), Heard::Nothing), "{line}");
        }
        // That of a peer to whom nothing was sensible either.
        let Heard::Wrong(answer) = read(b"{") else { panic!("it is not refused") };
        assert!(!matches!(read(answer.to_string().as_bytes()), Heard::Wrong(_)));
    }

    #[test]
    fn a_message_is_read_whatever_stands_around_it() {
        for line in [
            &b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"[..],
            b" {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r",
        ] {
            assert!(matches!(read(line), Heard::Message(_)), "{line:?}");
        }
    }
}
