//! Provider API formats, as far as the tests need them.

/// A provider API format.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name in the configuration.
    pub kind: &'static str,
    /// Suffix of its base URL.
    pub base: &'static str,
    /// Header that contains the key.
    pub header: &'static str,
    /// Prefix of the key in the header.
    pub prefix: &'static str,
    /// Beginning of a reply with the text WORDS, without its end.
    pub beginning: &'static str,
    /// An error with the text WORDS in the middle of a reply.
    pub error: &'static str,
}

/// All formats that `brigade` supports.
pub const FORMATS: &[Format] = &[
    Format {
        kind: "openai",
        base: "/v1",
        header: "authorization",
        prefix: "Bearer ",
        beginning: "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"WORDS\"}}]}\n\n",
        error: "data: {\"error\":{\"message\":\"WORDS\",\"type\":\"server_error\"}}\n\n",
    },
    Format {
        kind: "anthropic",
        base: "/v1",
        header: "x-api-key",
        prefix: "",
        beginning: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"role\":\"assistant\",\
            \"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n\
            event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
            {\"type\":\"text\",\"text\":\"\"}}\n\n\
            event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
            {\"type\":\"text_delta\",\"text\":\"WORDS\"}}\n\n",
        error: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"WORDS\"}}\n\n",
    },
    Format {
        kind: "responses",
        base: "/v1",
        header: "authorization",
        prefix: "Bearer ",
        beginning: "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"status\":\
            \"in_progress\",\"output\":[]}}\n\n\
            event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":\
            {\"type\":\"message\",\"id\":\"m\",\"role\":\"assistant\",\"content\":[]}}\n\n\
            event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\
            \"output_index\":0,\"content_index\":0,\"delta\":\"WORDS\"}\n\n",
        error: "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"WORDS\"}\n\n",
    },
    Format {
        kind: "gemini",
        base: "/v1beta",
        header: "x-goog-api-key",
        prefix: "",
        beginning: "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"WORDS\"}]},\"index\":0}]}\n\n",
        error: "data: {\"error\":{\"code\":503,\"message\":\"WORDS\",\"status\":\"UNAVAILABLE\"}}\n\n",
    },
];

impl Format {
    /// Config section of a provider with this name at an address.
    pub fn provider(&self, name: &str, address: &str) -> String {
        let Format { kind, base, .. } = self;
        format!(
            "[providers.{name}]\nkind = '{kind}'\nbase_url = '{address}{base}'\napi_key_env = 'THE_KEY'\n"
        )
    }
}
