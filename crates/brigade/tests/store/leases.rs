//! Owners of leases. The laws of leases are among those of all stores.

use brigade::store::{Liveness, Owner};

fn local_owner() -> Owner {
    Owner::this_process()
}

#[test]
fn liveness_is_known_on_the_same_host_only() {
    assert!(local_owner().is_alive());
    let dead = Owner { start_time: local_owner().start_time + 1, ..local_owner() };
    assert!(!dead.is_alive());
    assert_eq!(
        Owner { host: "another-host".into(), ..local_owner() }.liveness(&local_owner()),
        Liveness::Elsewhere
    );
    assert_eq!(Owner { boot_id: "x".into(), ..local_owner() }.liveness(&local_owner()), Liveness::Dead);
    let init = Owner { pid: 1, ..local_owner() };
    assert_eq!(init.liveness(&local_owner()), Liveness::Dead, "the same pid with another start time");
}
