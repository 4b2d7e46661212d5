"""Random commands of several writers that crash, and a plain model of what a user would expect of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from retold.tests.proof.served import Served
from retold.tests.proof.writers import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


def prove(server: Server, examples: int, steps: int, *, derandomize: bool) -> None:
    run_state_machine_as_test(
        lambda: Served(server),  # type: ignore[arg-type]  # whatever makes a machine will do
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            deadline=None,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
            print_blob=True,
        ),
    )


def test_whatever_writers_do_and_wherever_they_crash_the_home_is_as_a_user_expects(server: Server) -> None:
    prove(server, 40, 30, derandomize=True)


@pytest.mark.soak
def test_whatever_writers_do_for_long_the_home_is_as_a_user_expects(server: Server) -> None:
    prove(server, int(os.environ.get("RETOLD_PROVE", "1000")), 50, derandomize=False)
