//! The same under the next Debian's systemd (257): what depends on the manager, once more.

use harness::systemd::SystemdBox;

use super::{connector, executor, hardened, person};

#[test]
fn it_is_really_another_systemd() {
    let version = SystemdBox::newer().run("systemctl --version | head -n 1");
    let number = version.split(' ').nth(1).and_then(|number| number.parse::<u32>().ok());
    assert!(number.is_some_and(|number| number >= 257), "{version}");
}

#[test]
fn under_257_a_decision_reaches_the_remote_and_the_token_is_the_services_alone() {
    executor::starts_and_reaches_the_remote(&SystemdBox::newer());
}

#[test]
fn under_257_a_killed_executor_comes_back_and_a_stop_is_clean() {
    executor::comes_back_and_stops(&SystemdBox::newer());
}

#[test]
fn under_257_one_that_hangs_is_killed_by_the_watchdog() {
    executor::is_watched(&SystemdBox::newer());
}

#[test]
fn under_257_a_message_in_a_channel_ends_as_a_pushed_commit() {
    connector::message_ends_as_a_commit(&SystemdBox::newer());
}

#[test]
fn under_257_a_killed_connector_comes_back_and_a_stopped_one_does_not() {
    connector::is_killed_and_is_stopped(&SystemdBox::newer());
}

#[test]
fn under_257_the_units_are_clean_and_their_exposure_is_low() {
    hardened::are_clean_and_little_exposed(&SystemdBox::newer());
}

#[test]
fn under_257_a_persons_own_units_bring_a_decision_to_the_remote() {
    person::serves_and_goes_again(&SystemdBox::newer());
}

#[test]
fn under_257_a_persons_unit_is_contained() {
    person::is_contained(&SystemdBox::newer());
}
