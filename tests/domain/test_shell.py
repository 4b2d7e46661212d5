"""Values in command lines: what a shell makes of them is what they were."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from retold.domain.shell import shell_word

ODD = "id\x1b[31m\nx\x07 it's \\ a\u202eb \U000e0041 ü漢"


def test_a_plain_word_is_itself_and_one_with_spaces_is_quoted() -> None:
    assert shell_word("20260504_080000_b33d43d5") == "20260504_080000_b33d43d5"
    assert shell_word("kitchen plan #2") == "'kitchen plan #2'"


def test_a_word_that_would_harm_a_terminal_is_spelled_out() -> None:
    assert shell_word("id\x1b[31m\nx") == r"$'id\x1b[31m\nx'"
    assert shell_word(ODD).isprintable()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash, which is asked here, is not installed")
def test_bash_reads_it_as_it_was() -> None:
    script = f"printf %s {shell_word(ODD)}"
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=env, check=True)

    assert done.stdout.decode() == ODD
