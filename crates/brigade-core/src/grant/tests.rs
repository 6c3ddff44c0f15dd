use serde_json::json;

use super::*;

fn budget(tokens: u64, usd: u64, agents: u64) -> Budget {
    Budget { tokens: Limit::AtMost(tokens), usd: Limit::AtMost(usd), agents: Limit::AtMost(agents) }
}

fn amount(tokens: u64, usd: u64, agents: u64) -> Resources {
    Resources { tokens, usd, agents }
}

#[test]
fn limit_is_stored_as_a_number_or_a_word() {
    for (limit, json) in [(Limit::AtMost(5), json!(5)), (Limit::Unlimited, json!("unlimited"))] {
        assert_eq!(serde_json::to_value(limit).unwrap(), json);
        assert_eq!(serde_json::from_value::<Limit>(json).unwrap(), limit);
    }
    assert!(serde_json::from_value::<Limit>(json!("many")).is_err());
}

#[test]
fn limits_are_compared_and_reduced() {
    let (five, none) = (Limit::AtMost(5), Limit::Unlimited);
    assert_eq!((five.number(), none.number()), (5, u64::MAX));
    assert_eq!((five.minus(2), five.minus(9), none.minus(9)), (Limit::AtMost(3), Limit::AtMost(0), none));
    assert_eq!((five.min(Limit::AtMost(3)), five.min(none), none.min(five)), (Limit::AtMost(3), five, five));
    assert_eq!(none.min(none), none);
}

#[test]
fn budget_of_two_limits_is_none_without_any() {
    assert_eq!(Budget::of(None, None), None);
    let expected = Budget { tokens: Limit::AtMost(5), ..Budget::UNLIMITED };
    assert_eq!(Budget::of(Some(5), None), Some(expected));
    let expected = Budget { usd: Limit::AtMost(7), ..Budget::UNLIMITED };
    assert_eq!(Budget::of(None, Some(7)), Some(expected));
}

#[test]
fn budget_is_shared_exhausted_and_narrowed_in_every_field() {
    assert_eq!(budget(10, 21, 5).share(2), budget(5, 10, 2));
    assert_eq!(budget(10, 21, 5).share(0), budget(10, 21, 5));
    assert_eq!(Budget::UNLIMITED.share(3), Budget::UNLIMITED);
    assert_eq!(budget(10, 21, 5).exhausted(), budget(0, 0, 0));
    let tokens_only = Budget { tokens: Limit::AtMost(5), ..Budget::UNLIMITED };
    assert_eq!(tokens_only.exhausted(), Budget { tokens: Limit::AtMost(0), ..Budget::UNLIMITED });
    assert_eq!(budget(10, 1, 5).min(budget(2, 8, 9)), budget(2, 1, 5));
    assert_eq!(budget(10, 9, 8).minus(amount(1, 2, 3)), budget(9, 7, 5));
}

#[test]
fn amount_fits_if_every_field_does() {
    let granted = budget(10, 10, 10);
    assert!(granted.fits(amount(10, 10, 10)) && Budget::UNLIMITED.fits(amount(11, 11, 11)));
    for (amount, rest) in [
        (amount(11, 0, 0), amount(1, 0, 0)),
        (amount(0, 12, 0), amount(0, 2, 0)),
        (amount(0, 0, 13), amount(0, 0, 3)),
    ] {
        assert!(!granted.fits(amount), "{amount:?}");
        assert_eq!(granted.exceeded_by(amount), rest);
    }
}

#[test]
fn times_covered_is_that_of_the_scarcer_resource_and_at_least_one() {
    assert_eq!(budget(100, 40, 0).times_covered(amount(10, 10, 0)), 4);
    assert_eq!(budget(30, 400, 0).times_covered(amount(10, 10, 0)), 3);
    assert_eq!(budget(30, 0, 0).times_covered(amount(10, 0, 0)), 3);
    assert_eq!(budget(5, 5, 0).times_covered(amount(10, 10, 0)), 1);
    assert_eq!(Budget::UNLIMITED.times_covered(amount(10, 10, 0)), u64::MAX);
}

#[test]
fn loan_takes_only_what_the_lender_limits() {
    let lender = Budget { tokens: Limit::AtMost(100), ..Budget::UNLIMITED };
    assert_eq!(budget(10, 20, 3).charged_to(&lender), amount(10, 0, 0));
    assert_eq!(Budget::UNLIMITED.charged_to(&lender), amount(u64::MAX, 0, 0));
    assert_eq!(budget(10, 20, 3).as_loan(&budget(100, 100, 100)), amount(10, 20, 4));
}

#[test]
fn hash_of_an_authority_is_that_of_its_stored_text() {
    let authority = Authority { max_depth: 2, ..Authority::default() };
    assert_eq!(serde_json::from_str::<Authority>(&authority.encoded()).unwrap(), authority);
    assert_eq!(authority.hash(), Hash::of(authority.encoded().as_bytes()));
    assert_ne!(authority.hash(), Authority::default().hash());
}

#[test]
fn sandbox_of_a_child_is_the_narrower_one() {
    let with = |sandbox| Authority { sandbox, max_depth: 2, ..Authority::default() };
    let child = |parent: Option<SandboxMode>, asked: Option<SandboxMode>| {
        let request = AuthorityRequest { sandbox: asked, max_depth: 2, ..AuthorityRequest::default() };
        with(parent).attenuate(&request, 1).unwrap().authority.sandbox
    };
    use SandboxMode::{Off, ReadOnly, Workspace};
    assert_eq!(child(None, None), None);
    assert_eq!(child(None, Some(ReadOnly)), Some(ReadOnly));
    assert_eq!(child(Some(Workspace), None), Some(Workspace));
    assert_eq!(child(Some(Workspace), Some(Off)), Some(Workspace));
    assert_eq!(child(Some(Off), Some(ReadOnly)), Some(ReadOnly));
    assert!(with(Some(ReadOnly)).is_within(&with(Some(Workspace))) && with(Some(Off)).is_within(&with(None)));
    assert!(!with(Some(Off)).is_within(&with(Some(Workspace))) && !with(None).is_within(&with(Some(Off))));
    // A log from before the field is read as it was.
    assert!(!with(None).encoded().contains("sandbox"));
}
