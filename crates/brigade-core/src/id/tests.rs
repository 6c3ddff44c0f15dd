//! Tests of ids and hashes.

use super::*;

#[test]
fn ids_round_trip_through_json() {
    let hash = Hash::of(b"content");
    assert_eq!(hash.to_string(), blake3::hash(b"content").to_hex().as_str());
    let mut pieces = Hash::builder();
    [&b"con"[..], b"", b"tent"].into_iter().for_each(|piece| pieces.add(piece));
    assert_eq!(pieces.hash(), hash);
    let (session, call) = (SessionId::root(7), CallId { turn: 2, index: 10 });
    let json = serde_json::to_string(&(hash, &session, call)).unwrap();
    assert_eq!(json, format!(r#"["{hash}","{session}","2-10"]"#));
    assert_eq!(serde_json::from_str::<(Hash, SessionId, CallId)>(&json).unwrap(), (hash, session, call));
}

fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}

/// Root id whose bits are all zero, with this suffix.
fn zero(suffix: &str) -> String {
    format!("{}{suffix}", "a".repeat(26))
}

fn call(turn: u32, index: u32) -> CallId {
    CallId { turn, index }
}

#[test]
fn root_id_contains_all_bits_in_base32() {
    assert_eq!(SessionId::root(0).as_str(), zero(""));
    assert_eq!(SessionId::root(7).as_str(), format!("{}h", "a".repeat(25)));
    assert_eq!(SessionId::root(33).as_str(), format!("{}bb", "a".repeat(24)));
    // The first character has the upper 3 of the 128 bits.
    assert_eq!(SessionId::root(u128::MAX).as_str(), format!("h{}", "7".repeat(25)));
    assert_eq!(SessionId::root(1 << 125).as_str(), format!("b{}", "a".repeat(25)));
}

#[test]
fn child_id_names_its_call_and_index() {
    let root = SessionId::root(0);
    let (child, third) = (root.child(call(2, 10)), root.child_of_several(call(2, 10), 3));
    assert_eq!((child.to_string(), third.to_string()), (zero(".2-10"), zero(".2-10-3")));
    assert_eq!(root.call(), None);
    assert_eq!(child.call(), Some((call(2, 10), 0)));
    assert_eq!(third.call(), Some((call(2, 10), 3)));
    assert_eq!(third.child(call(4, 1)).call(), Some((call(4, 1), 0)));
}

#[test]
fn ancestors_of_an_id_are_its_prefixes() {
    let (root, child, grandchild) = (id(&zero("")), id(&zero(".1-1")), id(&zero(".1-1.2-0-5")));
    assert_eq!((root.parent(), child.parent()), (None, Some(root.clone())));
    assert_eq!(grandchild.parent(), Some(child.clone()));
    for session in [&root, &child, &grandchild] {
        assert_eq!((session.root_id(), session.root_str()), (root.clone(), root.as_str()));
        assert_eq!(session.is_root(), *session == root);
        assert!(root.contains(session) && session.contains(session));
    }
    assert!(child.contains(&grandchild));
    assert!(!grandchild.contains(&child) && !child.contains(&root));
    // A longer number is another call.
    assert!(!child.contains(&id(&zero(".1-10"))));
    assert!(!root.contains(&SessionId::root(1)));
}

#[test]
fn session_id_with_a_wrong_format_is_rejected() {
    for suffix in ["", ".1-0", ".1-0-2", ".0-0", ".4294967295-0", ".1234567890-1234567890-1234567890"] {
        assert_eq!(zero(suffix).parse::<SessionId>().unwrap().as_str(), zero(suffix));
    }
    for suffix in
        [".", ".1", ".1-", ".-1", ".1-2-3-4", ".1--2", ".a-1", ".1-b", ".12345678901-1", ".1-1.", "..1-1"]
    {
        assert!(zero(suffix).parse::<SessionId>().is_err(), "{suffix}");
    }
    for root in ["", "a", &"a".repeat(25), &"a".repeat(27), &"A".repeat(26), &"1".repeat(26), &"8".repeat(26)]
    {
        assert!(root.parse::<SessionId>().is_err(), "{root}");
    }
}

#[test]
fn session_id_has_at_most_1024_bytes() {
    let levels = ".1-1".repeat(248);
    let (longest, longer) = (zero(&format!("{levels}.111-1")), zero(&format!("{levels}.1111-1")));
    assert_eq!((longest.len(), longer.len()), (1024, 1025));
    assert!(longest.parse::<SessionId>().is_ok() && longer.parse::<SessionId>().is_err());
}

#[test]
fn id_errors_quote_a_short_text_without_control_characters() {
    let text = format!("\x1b{}", "z".repeat(100));
    let shown = |length: usize| "z".repeat(length);
    assert_eq!(text.parse::<SessionId>(), Err(IdError::Session(shown(80))));
    assert_eq!(text.parse::<CallId>(), Err(IdError::Call(shown(40))));
    assert_eq!(text.parse::<Hash>(), Err(IdError::Hash(shown(80))));
}

#[test]
fn call_id_has_one_spelling() {
    assert_eq!("2-10".parse(), Ok(call(2, 10)));
    assert_eq!("0-4294967295".parse(), Ok(call(0, u32::MAX)));
    for bad in ["", "2", "2-", "-2", "02-1", "2-01", "+2-1", "2-+1", "2-1-1", " 2-1", "4294967296-0"] {
        assert_eq!(bad.parse::<CallId>(), Err(IdError::Call(bad.to_owned())));
    }
    assert_eq!(format!("{0} {0:?}", call(2, 10)), "2-10 2-10");
}

#[test]
fn ids_are_ordered_and_borrowed_like_their_text() {
    let session = id(&zero(".1-1"));
    let borrowed: &str = session.borrow();
    assert_eq!(borrowed, session.as_str());
    assert_eq!(format!("{session} {session:?}"), format!("{0} {0}", zero(".1-1")));
    assert!(call(1, 9) < call(2, 0) && call(2, 0) < call(2, 1));
}

#[test]
fn hash_chain_covers_kind_parts_and_their_boundaries() {
    let start = Hash::of(b"start");
    let mut expected = start.as_bytes().to_vec();
    expected.extend(b"kind\x02\0\0\0\0\0\0\0ab\x01\0\0\0\0\0\0\0c");
    let chained = start.chain("kind", &[b"ab", b"c"]);
    assert_eq!(chained, Hash::of(&expected));
    let others = [
        start.chain("kind", &[b"a", b"bc"]),
        start.chain("kind", &[b"ab"]),
        start.chain("other", &[b"ab", b"c"]),
        Hash::of(b"other").chain("kind", &[b"ab", b"c"]),
    ];
    assert!(!others.contains(&chained));
}

#[test]
fn hash_text_is_hexadecimal() {
    let hash = Hash(std::array::from_fn(|byte| (byte * 8 + 3) as u8));
    let text = "030b131b232b333b434b535b636b737b838b939ba3abb3bbc3cbd3dbe3ebf3fb";
    assert_eq!((hash.to_string().as_str(), text.parse()), (text, Ok(hash)));
    assert_eq!(format!("{hash:?}"), "030b131b232b");
    for bad in ["", &text[1..], &format!("{text}0"), &text.replace('b', "g")] {
        assert_eq!(bad.parse::<Hash>(), Err(IdError::Hash(bad.to_owned())));
    }
}
