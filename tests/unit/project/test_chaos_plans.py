"""The rounds of `make chaos`: a round is the same whatever else is played, and its moment is a step, not a second."""

from __future__ import annotations

import chaos
import pytest


def test_a_round_depends_on_seed_and_number_alone() -> None:
    plans = [chaos.planned(7, number) for number in range(1, 400)]
    assert plans[299] == chaos.planned(7, 300)
    assert chaos.planned(8, 300) != plans[299]
    assert {plan.command for plan in plans} == set(chaos.COMMANDS)
    assert {plan.kind for plan in plans} == set(chaos.KINDS)
    assert all(plan.kind in chaos.kinds(chaos.COMMANDS[plan.command]) for plan in plans)


def test_a_round_of_chosen_commands_is_repeated_by_its_own_words() -> None:
    plan = chaos.planned(7, 3, "upgrade", "rocky9", "power")
    assert (plan.command, plan.system, plan.kind) == ("upgrade", "rocky9", "power")
    words = plan.repeat.split()[2:]
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert chaos.planned(
        int(given["--seed"]), int(given["--round"]), given["--only"], given["--system"], given["--disturb"]
    ) == plan  # fmt: skip


def test_words_that_no_round_can_have_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        chaos.main(["--only", "drift", "--disturb", "kill-ansible", "--seed", "1"])
    assert ended.value.code == 2
    assert "no such round: --only drift --disturb kill-ansible" in capsys.readouterr().err


def test_the_moment_is_the_time_since_a_step_that_both_runs_print() -> None:
    lines = ("  0:01 read", "  0:04   Hold ...", "  0:09   Hold, 0:05", "  0:09   Hold: changed (0:05)", "  0:10 read")
    steps = [chaos.step(line) for line in lines]
    assert steps == ["read", "", "", "Hold: changed", "read"]
    run = chaos.Undisturbed(0, 12.0, [(float(n), one) for n, one in enumerate(steps) if one], {})
    assert run.moment(0.5) == ("read", 2, 2.0)
    assert run.moment(3.5 / 12) == ("Hold: changed", 1, 0.5)
    assert chaos.Undisturbed(0, 10.0, [(2.0, "x")], {}).moment(0.1) == ("", 0, 1.0)


def test_the_states_of_two_machines_differ_by_their_lines() -> None:
    wanted = {"## packages": ["ii a 1", "ii b 1"], "## units": []}
    assert chaos.differences(wanted, wanted) == []
    found = {"## packages": ["ii a 1", "iF b 1"], "## units": ["failed x.service"]}
    assert chaos.differences(wanted, found) == [
        "## packages: - ii b 1", "## packages: + iF b 1", "## units: + failed x.service",
    ]  # fmt: skip
