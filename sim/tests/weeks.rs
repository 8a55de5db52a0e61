//! Days of load and silence leave nothing behind (I29); `settee-sim weeks` runs more of them.
#![cfg(feature = "sim")]

#[test]
fn a_node_holds_no_more_from_night_to_night() {
    let nights = settee_sim::weeks::run(1, 4).unwrap_or_else(|text| panic!("{text}"));
    assert_eq!(nights.len(), 4);
}
