"""All releases of the study, at every size and epsilon."""

from tests.lab.kinds.test_release_comparison import (
    check_jobs,
    check_long_updates,
    check_what_points_leave,
)


def test_all_releases_by_two_processes():
    check_jobs("run.jobs=2")


def test_updates_beside_all_other_releases():
    check_long_updates()


def test_what_points_leave_at_every_epsilon():
    check_what_points_leave()
