//! Tools of other programs, against servers that behave well and badly. Guards and servers are this test binary.

// The attribute tells clippy that helpers in here are tests too.
#[cfg(test)]
mod mcp {
    mod authority;
    mod fixture;
    mod hostile;
    mod http;
    mod oauth;
    mod sharing;
    mod support;
    mod tools;
}
