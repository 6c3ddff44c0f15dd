//! CORS headers, so that accepted web pages can read the responses.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// Methods and headers for web pages of accepted origins, each a list separated by commas.
#[derive(Debug, Clone)]
pub struct Cors {
    /// Methods that a page may use.
    pub methods: HeaderValue,
    /// Headers that a page may send.
    pub request_headers: HeaderValue,
    /// Headers of responses that a page may read.
    pub response_headers: HeaderValue,
}

impl Default for Cors {
    fn default() -> Cors {
        Cors {
            methods: HeaderValue::from_static("GET, POST"),
            request_headers: HeaderValue::from_static("authorization, content-type, accept, last-event-id"),
            response_headers: HeaderValue::from_static("www-authenticate"),
        }
    }
}

impl Cors {
    /// Responds to a preflight request.
    pub(crate) fn preflight(&self, origin: &HeaderValue) -> Response {
        let mut response = self.readable(StatusCode::NO_CONTENT.into_response(), origin);
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.request_headers.clone());
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        response
    }

    /// Lets web pages of this origin read the response.
    pub(crate) fn readable(&self, mut response: Response, origin: &HeaderValue) -> Response {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.response_headers.clone());
        headers.append(VARY, HeaderValue::from_static("origin"));
        response
    }
}
