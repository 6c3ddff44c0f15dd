//! Names of servers and tools in permission rules and tool lists.

use brigade_core::permission::Rule;

use super::McpError;

/// Maximum length of a tool name that providers accept.
const MAX_TOOL_NAME_BYTES: usize = 64;

/// Normalizes the name of a server for use in tool names. A double underscore would make them ambiguous.
pub(super) fn server(raw: &str) -> Result<String, McpError> {
    let name = raw.to_ascii_lowercase();
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= 32 && name.bytes().all(known);
    if !is_name || name.contains("__") || name.starts_with('_') || name.ends_with('_') {
        return Err(McpError::Config(
            "invalid server name. Use up to 32 letters, digits, `-` and single `_`, and no `_` at the start or \
             end."
                .to_owned(),
        ));
    }
    Ok(name)
}

/// Returns the local name of a server's tool. It is converted to lower case, and separators become
/// underscores.
pub(super) fn tool(server: &str, raw: &str) -> Result<String, McpError> {
    let shown: String = raw.chars().filter(|c| !c.is_control()).take(MAX_TOOL_NAME_BYTES).collect();
    let plain: String = raw
        .chars()
        .map(|c| match c.to_ascii_lowercase() {
            c if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' => c,
            '_' | '.' | '/' | ':' | ' ' => '_',
            _ => '\0',
        })
        .collect();
    let name = format!("mcp__{server}__{plain}");
    if plain.is_empty() || plain.contains('\0') {
        return Err(McpError::Tool(format!(
            "cannot offer the tool '{shown}': its name contains unsupported characters"
        )));
    }
    if name.len() > MAX_TOOL_NAME_BYTES {
        return Err(McpError::Tool(format!(
            "cannot offer the tool '{shown}': the name '{name}' is longer than {MAX_TOOL_NAME_BYTES} characters"
        )));
    }
    match name.parse::<Rule>() {
        Ok(_) => Ok(name),
        Err(error) => Err(McpError::Tool(format!("cannot offer the tool '{shown}': {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_name_without_double_underscore_is_accepted() {
        for fits in ["everything", "my-server", "a_b", "GitHub", "x1"] {
            assert_eq!(server(fits), Ok(fits.to_ascii_lowercase()));
        }
        for wrong in ["", "a__b", "_a", "a_", "a b", "a.b", "é", "mcp__x", &"a".repeat(33)] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tool_name_is_normalized_for_rules() {
        let named = |raw: &str| tool("s", raw).ok();
        assert_eq!(named("echo").as_deref(), Some("mcp__s__echo"));
        assert_eq!(named("getTinyImage").as_deref(), Some("mcp__s__gettinyimage"));
        assert_eq!(named("fs.read/file").as_deref(), Some("mcp__s__fs_read_file"));
        for wrong in ["", "a*", "é", "a(b)", "a\nb", &"a".repeat(60)] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
