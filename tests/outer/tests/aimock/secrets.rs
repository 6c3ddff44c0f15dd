//! Keys are planted and then searched for in every byte that was written or sent.

use std::sync::LazyLock;

use brigade_outer_tests::{
    Aimock, CannedResponse, CommandOutput, FORMATS, Format, RecordedRequest, RecordingServer, SecretScanner,
    TestEnv, files_below,
};

use crate::aimock::fixtures;

/// The key from the environment, and the key from an agent file.
static KEYS: LazyLock<[SecretScanner; 2]> =
    LazyLock::new(|| [SecretScanner::new(Aimock::KEY), SecretScanner::new(Aimock::OTHER_KEY)]);

const OUTPUTS: [&str; 3] = ["text", "json", "stream-json"];

/// Behaviour of a provider that receives a request with a key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Provider {
    Answers,
    RefusesTheKey,
    FailsWithTheKey,
    CutsOffAfterTheKey,
    FailsInTheMiddleWithTheKey,
    Redirects,
}

const BAD: [Provider; 5] = [
    Provider::RefusesTheKey,
    Provider::FailsWithTheKey,
    Provider::CutsOffAfterTheKey,
    Provider::FailsInTheMiddleWithTheKey,
    Provider::Redirects,
];

impl Provider {
    fn start(
        self,
        format: &'static Format,
        key: &'static str,
        aimock: &Aimock,
        trap: &RecordingServer,
    ) -> RecordingServer {
        let (aimock, trap) = (aimock.address.clone(), trap.address.clone());
        RecordingServer::start(move |request| self.answer(format, key, request, &aimock, &trap))
    }

    fn answer(
        self,
        format: &Format,
        key: &str,
        request: &RecordedRequest,
        aimock: &str,
        trap: &str,
    ) -> CannedResponse {
        let events = |events: &str| events.replace("WORDS", &format!("your key is {key}"));
        match self {
            Provider::Answers => CannedResponse::Forward(aimock.to_owned(), request.body.clone()),
            Provider::RefusesTheKey => {
                let body = format!(
                    "{{\"error\":{{\"message\":\"Wrong key {key}\",\"type\":\"auth\",\"key\":\"{key}\"}}}}"
                );
                CannedResponse::new(
                    "401 Unauthorized",
                    "application/json",
                    &format!("X-Key: {key}\r\n"),
                    &body,
                )
            }
            Provider::FailsWithTheKey => {
                let headers = format!("Retry-After: {key}\r\n");
                CannedResponse::new("500 Broken", "text/plain", &headers, &format!("no luck with {key}"))
            }
            Provider::CutsOffAfterTheKey => CannedResponse::cut(&events(format.beginning)),
            Provider::FailsInTheMiddleWithTheKey => {
                let stream = format!("{}{}", format.beginning.replace("WORDS", "well"), events(format.error));
                CannedResponse::new("200 OK", "text/event-stream", "", &stream)
            }
            Provider::Redirects => {
                let headers = format!("Location: {trap}/{key}\r\n");
                CannedResponse::new(
                    "307 Temporary Redirect",
                    "text/plain",
                    &headers,
                    &format!("go to {trap}/{key}"),
                )
            }
        }
    }
}

#[test]
fn secret_scanner_finds_every_encoding() {
    let secret = SecretScanner::new("sk-hidden");
    let forms = [
        "sk-hidden",
        "neddih-ks",
        "736b2d68696464656e",
        "736B2D68696464656E",
        "xx c2staGlkZGVu",
        "eHNrLWhpZGRlbg==",
        "eHhzay1oaWRkZW4=",
    ];
    for form in forms {
        assert!(secret.is_in(format!("before {form} after").as_bytes()), "{form}");
    }
    assert!(secret.is_in(b"s\0k\0-\0h\0i\0d\0d\0e\0n\0") && !secret.is_in(b"sk-hidde"));
}

#[test]
fn keys_are_in_the_right_header_and_nowhere_else() {
    let aimock = &Aimock::start(&fixtures("secrets.json"), &[]);
    std::thread::scope(|scope| {
        for format in FORMATS {
            scope.spawn(move || {
                let good = OUTPUTS.map(|_| (Provider::Answers, Provider::Answers));
                let bad = BAD.iter().flat_map(|bad| [(*bad, Provider::Answers), (Provider::Answers, *bad)]);
                for ((lead, keeper), output) in good.into_iter().chain(bad).zip(OUTPUTS.iter().cycle()) {
                    one_run(format, aimock, lead, keeper, output);
                }
            });
        }
    });
}

/// Runs a lead with the key from the environment. It runs a command and delegates to an agent with its own
/// key.
fn one_run(format: &'static Format, aimock: &Aimock, lead: Provider, keeper: Provider, output: &str) {
    let trap = RecordingServer::start(|_| CannedResponse::new("200 OK", "text/plain", "", "caught"));
    let servers = [
        lead.start(format, Aimock::KEY, aimock, &trap),
        keeper.start(format, Aimock::OTHER_KEY, aimock, &trap),
    ];
    let env = TestEnv::new(&format!("model = 'it/small'\n{}", format.provider("it", &servers[0].address)));
    write_keeper(&env, &format!("{}{}", servers[1].address, format.base));
    let arguments = ["run", "guard the secrets", "--mode", "auto", "-v", "--output-format", output];
    let run = env.run_with_key(Aimock::KEY, &arguments);
    let what = format!("{} {lead:?} {keeper:?} {output}", format.kind);
    assert_eq!(run.code, if lead == Provider::Answers { 0 } else { 1 }, "{what}: {run:?}");
    let root = env.sessions()[0].clone();
    let mut outputs = vec![run];
    for arguments in [["export", &root], ["show", &root], ["tree", &root]] {
        outputs.push(env.brigade(&[&["sessions"], &arguments[..]].concat()));
    }
    let resumed = env.run_with_key(Aimock::KEY, &["resume", &root, "--mode", "auto", "-v"]);
    outputs.push(resumed);
    check_written_files(&what, &env, &outputs);
    assert!(trap.requests().is_empty(), "{what}: {:?}", trap.requests());
    check_requests(&what, format, &servers);
    for (server, provider) in servers.iter().zip([lead, keeper]) {
        let answered = lead == Provider::Answers && provider == Provider::Answers;
        assert_eq!(received_an_environment(server), answered, "{what}");
        let is_asked = !server.requests().is_empty();
        assert_eq!(is_asked, lead == Provider::Answers || provider == lead, "{what}");
    }
}

fn write_keeper(env: &TestEnv, base_url: &str) {
    let folder = env.path("home/agents/keeper");
    std::fs::create_dir_all(&folder).unwrap();
    let key = Aimock::OTHER_KEY;
    let file = format!(
        "---\nname: Keeper\ndescription: Keeps quiet\ntools: [shell]\nprovider: it\nmodel: small\napi_base: {base_url}\n\
         api_key: {key}\n---\nYou keep quiet.\n"
    );
    std::fs::write(folder.join("AGENT.md"), file).unwrap();
}

fn check_written_files(what: &str, env: &TestEnv, outputs: &[CommandOutput]) {
    for output in outputs {
        for key in &*KEYS {
            assert!(!key.is_in(output.stdout.as_bytes()), "{what}: stdout {}", output.stdout);
            assert!(!key.is_in(output.stderr.as_bytes()), "{what}: stderr {}", output.stderr);
        }
    }
    let written = ["home", "work", "tmp"].map(|folder| files_below(&env.path(folder)));
    let written: Vec<_> =
        written.iter().flatten().filter(|file| !file.ends_with("keeper/AGENT.md")).collect();
    assert!(written.iter().any(|file| file.ends_with("sessions.db")), "{written:?}");
    for file in written {
        let bytes = std::fs::read(file).unwrap();
        assert!(!KEYS.iter().any(|key| key.is_in(&bytes)), "{what}: {}", file.display());
    }
}

/// Checks that each server received its own key in the right header, and no key elsewhere.
fn check_requests(what: &str, format: &Format, servers: &[RecordingServer; 2]) {
    for (server, key) in servers.iter().zip([Aimock::KEY, Aimock::OTHER_KEY]) {
        for request in server.requests() {
            let header = format!("{}{key}", format.prefix);
            assert_eq!(request.header(format.header), [header.as_str()], "{what}");
            let others = request.head.replacen(&header, "", 1);
            for key in &*KEYS {
                assert!(!key.is_in(others.as_bytes()), "{what}: {}", request.head);
                assert!(!key.is_in(&request.body), "{what}: {}", request.json());
            }
        }
    }
}

/// Whether this server received the environment of a command.
fn received_an_environment(server: &RecordingServer) -> bool {
    server.requests().iter().any(|request| request.json().to_string().contains("PATH="))
}
