//! Sample streams that follow the documentation of the APIs.

/// Text and usage, from Chat Completions.
pub(super) const OPENAI_TEXT: &str = r#"data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"small","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"small","choices":[{"index":0,"delta":{"content":"Grüße, "},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"small","choices":[{"index":0,"delta":{"content":"cook."},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"small","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"small","choices":[],"usage":{"prompt_tokens":50,"completion_tokens":7,"total_tokens":57,"prompt_tokens_details":{"cached_tokens":32},"completion_tokens_details":{"reasoning_tokens":0}}}

data: [DONE]

"#;

/// Two calls whose arguments arrive in interleaved fragments.
pub(super) const OPENAI_CALLS: &str = r#": keep-alive

data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"read","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"pa"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"write","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"path\":"}},{"index":0,"function":{"arguments":"th\":\"a\"}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"\"ü\"}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":80,"completion_tokens":30}}

data: [DONE]

"#;

/// Text with pings and an unknown event.
pub(super) const ANTHROPIC_TEXT: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","content":[],"model":"small","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":11,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüße, "}}

event: from_the_future
data: {"type":"from_the_future","what":[1,2]}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"cook."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"delta_from_the_future","x":1}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// Thinking, then two calls, one of them without arguments.
pub(super) const ANTHROPIC_CALLS: &str = r#"event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":40,"output_tokens":2}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Two files."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"b3BhcXVl"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"a\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"write","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"input_tokens":41,"output_tokens":25}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// Text with an unknown event and an empty delta, from Responses.
pub(super) const RESPONSES_TEXT: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}}

event: response.in_progress
data: {"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1","status":"in_progress","output":[]}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}

event: response.content_part.added
data: {"type":"response.content_part.added","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","annotations":[],"text":""}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Grüße, "}

event: keepalive
data: {"type":"keepalive","sequence_number":5}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":6,"item_id":"msg_1","output_index":0,"content_index":0,"delta":""}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":7,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"cook."}

event: response.from_the_future
data: {"type":"response.from_the_future","delta":{"text":[1]},"item":7,"output_index":"x"}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":8,"item_id":"msg_1","output_index":0,"content_index":0,"text":"Grüße, cook."}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":9,"output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"Grüße, cook."}]}}

event: response.completed
data: {"type":"response.completed","sequence_number":10,"response":{"id":"resp_1","status":"completed","error":null,"incomplete_details":null,"output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"Grüße, cook."}]}],"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":32},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":57}}}

"#;

/// Reasoning, text, a call, more reasoning, and another call whose arguments are interleaved with those of
/// the first. The terminal event repeats all of it.
pub(super) const RESPONSES_CALLS: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"resp_2","status":"in_progress","output":[]}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}

event: response.reasoning_summary_text.delta
data: {"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Two files."}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Two files."}],"encrypted_content":"c2VhbGVk","status":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","phase":"commentary","content":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"Ich schaue: ä"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","annotations":[],"text":"Ich schaue: ä"}]}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"call_a","name":"read","arguments":""}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{\"pa"}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":4,"item":{"id":"fc_2","type":"function_call","status":"in_progress","call_id":"call_b","name":"write","arguments":""}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","item_id":"fc_2","output_index":4,"delta":"{\"path\":"}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"th\":\"a\"}"}

event: response.function_call_arguments.done
data: {"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":2,"arguments":"{\"path\":\"a\"}"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_a","name":"read","arguments":"{\"path\":\"a\"}"}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","item_id":"fc_2","output_index":4,"delta":"\"ü\"}"}

event: response.function_call_arguments.done
data: {"type":"response.function_call_arguments.done","item_id":"fc_2","output_index":4,"arguments":"{\"path\":\"ü\"}"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":4,"item":{"id":"fc_2","type":"function_call","status":"completed","call_id":"call_b","name":"write","arguments":"{\"path\":\"ü\"}"}}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_2","status":"completed","error":null,"incomplete_details":null,"output":[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Two files."}],"encrypted_content":"c2VhbGVk"},{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","annotations":[],"text":"Ich schaue: ä"}]},{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_a","name":"read","arguments":"{\"path\":\"a\"}"},{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"bW9yZQ=="},{"id":"fc_2","type":"function_call","status":"completed","call_id":"call_b","name":"write","arguments":"{\"path\":\"ü\"}"}],"usage":{"input_tokens":80,"input_tokens_details":{"cached_tokens":0},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":12},"total_tokens":110}}}

"#;

/// A thought, text, and a last part that has only a signature, from Gemini.
pub(super) const GEMINI_TEXT: &str = r#"data: {"candidates":[{"content":{"parts":[{"text":"Be kind.","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":32,"totalTokenCount":52,"thoughtsTokenCount":2,"promptTokensDetails":[{"modality":"TEXT","tokenCount":50}]},"modelVersion":"small","responseId":"r1"}

data: {"candidates":[{"content":{"parts":[{"text":"Grüße, "}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":32,"candidatesTokenCount":3,"thoughtsTokenCount":2,"totalTokenCount":55},"modelVersion":"small","responseId":"r1"}

data: {"candidates":[{"content":{"parts":[{"text":"cook."}],"role":"model"},"index":0,"safetyRatings":[]}],"fromTheFuture":{"a":[1]}}

data: {"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"dGV4dA=="}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":32,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":57},"modelVersion":"small","responseId":"r1"}

"#;

/// Text, then two parallel calls. Only the first one has a signature and an id.
pub(super) const GEMINI_CALLS: &str = r#"data: {"candidates":[{"content":{"parts":[{"text":"Ich schaue: ä"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":80}}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"id":"fc1","name":"read","args":{"path":"a"}},"thoughtSignature":"c2lnbmVk"},{"functionCall":{"name":"write","args":{"path":"ü"}}}],"role":"model"},"index":0}]}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"write"}}],"role":"model"},"finishReason":"STOP","index":0}]}

data: {"usageMetadata":{"promptTokenCount":80,"candidatesTokenCount":20,"thoughtsTokenCount":10,"totalTokenCount":110}}

"#;
