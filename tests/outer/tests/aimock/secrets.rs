//! Keys are planted, and then looked for in every byte that was written or sent.

use std::sync::LazyLock;

use brigade_outer_tests::{Aimock, Answer, Asked, Done, FORMATS, Format, Place, Secret, Server, every_file};

use crate::fixtures;

/// The key of the environment, and the one of an agent's file.
static KEYS: LazyLock<[Secret; 2]> =
    LazyLock::new(|| [Secret::new(Aimock::KEY), Secret::new(Aimock::OTHER_KEY)]);

const OUTPUTS: [&str; 3] = ["text", "json", "stream-json"];

/// What a provider does with a request, and so with the key in it.
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
    fn start(self, format: &'static Format, key: &'static str, aimock: &Aimock, trap: &Server) -> Server {
        let (aimock, trap) = (aimock.address.clone(), trap.address.clone());
        Server::start(move |asked| self.answer(format, key, asked, &aimock, &trap))
    }

    fn answer(self, format: &Format, key: &str, asked: &Asked, aimock: &str, trap: &str) -> Answer {
        let events = |events: &str| events.replace("WORDS", &format!("your key is {key}"));
        match self {
            Provider::Answers => Answer::From(aimock.to_owned(), asked.body.clone()),
            Provider::RefusesTheKey => {
                let body = format!(
                    "{{\"error\":{{\"message\":\"Wrong key {key}\",\"type\":\"auth\",\"key\":\"{key}\"}}}}"
                );
                Answer::new("401 Unauthorized", "application/json", &format!("X-Key: {key}\r\n"), &body)
            }
            Provider::FailsWithTheKey => {
                let headers = format!("Retry-After: {key}\r\n");
                Answer::new("500 Broken", "text/plain", &headers, &format!("no luck with {key}"))
            }
            Provider::CutsOffAfterTheKey => Answer::cut(&events(format.beginning)),
            Provider::FailsInTheMiddleWithTheKey => {
                let stream = format!("{}{}", format.beginning.replace("WORDS", "well"), events(format.error));
                Answer::new("200 OK", "text/event-stream", "", &stream)
            }
            Provider::Redirects => {
                let headers = format!("Location: {trap}/{key}\r\n");
                Answer::new("307 Temporary Redirect", "text/plain", &headers, &format!("go to {trap}/{key}"))
            }
        }
    }
}

#[test]
fn a_secret_is_found_in_every_form() {
    let secret = Secret::new("sk-hidden");
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

/// A lead with the key of the environment has a command run and asks an agent that has a key of its own.
fn one_run(format: &'static Format, aimock: &Aimock, lead: Provider, keeper: Provider, output: &str) {
    let trap = Server::start(|_| Answer::new("200 OK", "text/plain", "", "caught"));
    let servers = [
        lead.start(format, Aimock::KEY, aimock, &trap),
        keeper.start(format, Aimock::OTHER_KEY, aimock, &trap),
    ];
    let place = Place::new(&format!("model = 'it/small'\n{}", format.provider("it", &servers[0].address)));
    write_keeper(&place, &format!("{}{}", servers[1].address, format.base));
    let arguments = ["run", "guard the secrets", "--mode", "auto", "-v", "--output-format", output];
    let run = place.with_key(Aimock::KEY, &arguments);
    let what = format!("{} {lead:?} {keeper:?} {output}", format.kind);
    assert_eq!(run.code, if lead == Provider::Answers { 0 } else { 1 }, "{what}: {run:?}");
    let root = place.sessions()[0].clone();
    let mut said = vec![run];
    for arguments in [["export", &root], ["show", &root], ["tree", &root]] {
        said.push(place.brigade(&[&["sessions"], &arguments[..]].concat()));
    }
    let resumed = place.with_key(Aimock::KEY, &["resume", &root, "--mode", "auto", "-v"]);
    said.push(resumed);
    check_what_was_written(&what, &place, &said);
    assert!(trap.asked().is_empty(), "{what}: {:?}", trap.asked());
    check_what_was_sent(&what, format, &servers);
    for (server, provider) in servers.iter().zip([lead, keeper]) {
        let answered = lead == Provider::Answers && provider == Provider::Answers;
        assert_eq!(was_shown_an_environment(server), answered, "{what}");
        let is_asked = !server.asked().is_empty();
        assert_eq!(is_asked, lead == Provider::Answers || provider == lead, "{what}");
    }
}

fn write_keeper(place: &Place, base_url: &str) {
    let folder = place.path("home/agents/keeper");
    std::fs::create_dir_all(&folder).unwrap();
    let key = Aimock::OTHER_KEY;
    let file = format!(
        "---\nname: Keeper\ndescription: Keeps quiet\ntools: [shell]\nprovider: it\nmodel: small\napi_base: {base_url}\n\
         api_key: {key}\n---\nYou keep quiet.\n"
    );
    std::fs::write(folder.join("AGENT.md"), file).unwrap();
}

fn check_what_was_written(what: &str, place: &Place, said: &[Done]) {
    for done in said {
        for key in &*KEYS {
            assert!(!key.is_in(done.stdout.as_bytes()), "{what}: stdout {}", done.stdout);
            assert!(!key.is_in(done.stderr.as_bytes()), "{what}: stderr {}", done.stderr);
        }
    }
    let written = ["home", "work", "tmp"].map(|folder| every_file(&place.path(folder)));
    let written: Vec<_> =
        written.iter().flatten().filter(|file| !file.ends_with("keeper/AGENT.md")).collect();
    assert!(written.iter().any(|file| file.ends_with("sessions.db")), "{written:?}");
    for file in written {
        let bytes = std::fs::read(file).unwrap();
        assert!(!KEYS.iter().any(|key| key.is_in(&bytes)), "{what}: {}", file.display());
    }
}

/// Each server was sent its own key in the right header, and nothing else of any key.
fn check_what_was_sent(what: &str, format: &Format, servers: &[Server; 2]) {
    for (server, key) in servers.iter().zip([Aimock::KEY, Aimock::OTHER_KEY]) {
        for request in server.asked() {
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

/// Whether a command showed its environment to this server.
fn was_shown_an_environment(server: &Server) -> bool {
    server.asked().iter().any(|request| request.json().to_string().contains("PATH="))
}
