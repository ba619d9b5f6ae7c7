"""The CI recipe of docs/check.md and the pre-commit hook in a scratch repository: a change is made, the answer read."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.changes import GUARDED, ROOT

PAGE = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
HOOKS = ROOT / ".pre-commit-hooks.yaml"


def recipe():
    """The steps of the page's workflow."""
    text = PAGE.split("```yaml\n# .github/workflows/tpsim.yml\n")[1].split("```")[0]
    return yaml.safe_load(text)["jobs"]["tpsim"]["steps"]


def sh(command, cwd, **more):
    """A shell command as CI runs it: it stops at the first that fails. tpsim is the one of this checkout."""
    path = os.pathsep.join([str(cwd.parent / "bin"), os.environ["PATH"]])
    identity = {f"GIT_{who}_{what}": "ci@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    env = {**os.environ, **identity, **plain, "PATH": path, **more}
    bash = shutil.which("bash") or "/bin/bash"
    return subprocess.run([bash, "-ec", command], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def done(command, cwd):
    ran = sh(command, cwd)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def script(file, line):
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """A repository whose main branch holds a scenario, with a machine and a model of its own, and its lock."""
    work = tmp_path_factory.mktemp("upstream")
    (work / "bin").mkdir()
    script(work / "bin" / "tpsim", f'exec {shlex.quote(sys.executable)} -m tpsim "$@"')
    script(work / "bin" / "gh", "cp comment.md posted.md")
    team = work / "team"
    shutil.copytree(GUARDED, team, ignore=shutil.ignore_patterns("node.yaml", "shards.yaml"))
    done("git init -q -b main && tpsim check --update scenarios -q && git add . && git commit -qm 'scenarios'", team)
    return work


@pytest.fixture
def clone(upstream, tmp_path):
    """A clone of it, on a branch of its own, with the same tools."""
    shutil.copytree(upstream / "bin", tmp_path / "bin")
    done(f"git clone -q {shlex.quote(str(upstream / 'team'))} clone", tmp_path / "bin")
    shutil.move(tmp_path / "bin" / "clone", tmp_path / "clone")
    done("git switch -q -c change", tmp_path / "clone")
    return tmp_path / "clone"


def narrower(clone):
    file = clone / "hardware" / "pod.yaml"
    file.write_text(file.read_text().replace("value: 45 GB/s", "value: 40 GB/s"))


def run_recipe(clone, base="main"):
    """The recipe's steps after the installation: the exit codes of both, and the comment that was posted."""
    guard, post = (step for step in recipe() if "run" in step and "pip install" not in step["run"])
    assert guard["env"] == {"BASE": "${{ github.base_ref }}"}
    assert post["if"] == "always()"
    checked = sh(guard["run"], clone, BASE=base)
    posted = sh(post["run"].replace("${{ github.event.number }}", "7"), clone)
    comment = clone / "posted.md"
    return checked.returncode, posted.returncode, comment.read_text() if comment.exists() else ""


def test_the_recipe_is_one_block_that_checks_out_the_base_and_installs():
    first, install, *_ = recipe()
    assert first["with"] == {"fetch-depth": 0}
    assert install == {"run": 'pip install "git+${{ vars.TPSIM }}"'}


def test_nothing_is_installed_that_no_index_has(tmp_path):
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "pip", 'printf "%s\\n" "$@"')
    install = recipe()[1]["run"].replace("${{ vars.TPSIM }}", "https://example.org/tpsim.git@main")
    asked = sh(install, tmp_path / "bin").stdout.split()
    assert asked == ["install", "git+https://example.org/tpsim.git@main"]
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    lines = [line for text in texts for line in re.findall(r"pip install[^`\n]*", text)]
    assert len(lines) >= 5
    assert [line for line in lines if not re.search(r" -e |git\+| \.$", line)] == []


def test_a_pull_request_that_moves_nothing_passes_without_a_comment(clone):
    (clone / "notes.md").write_text("nothing to do with scenarios\n")
    assert run_recipe(clone) == (0, 0, "")


def test_a_pull_request_that_moves_a_constant_fails_as_does_the_one_line_and_its_comment_names_it(clone):
    narrower(clone)
    failed, posted, comment = run_recipe(clone)
    assert (failed, posted) == (1, 0)
    assert "hardware/pod.levels.ici.link.bandwidth 45 GB/s -> 40 GB/s (-11.1 %)" in comment
    assert "| scenarios/pod |" in comment
    assert sh(PAGE.split("Anywhere else it is one line, `")[1].split("`")[0], clone).returncode == 1


def test_a_pull_request_that_moves_the_lock_too_passes_and_its_comment_says_what_moved(clone):
    narrower(clone)
    done("tpsim check --update -q", clone)
    passed, posted, comment = run_recipe(clone)
    assert (passed, posted) == (0, 0)
    title, _, verdict, *_ = comment.splitlines()
    assert title == "### base.lock -> tpsim.lock"
    assert verdict.startswith("**step ")
    assert "because constant hardware/pod.levels.ici.link.bandwidth" in verdict


def test_the_pull_request_that_brings_the_lock_passes(clone):
    done("git update-ref refs/remotes/origin/bare $(git commit-tree -m bare $(git mktree < /dev/null))", clone)
    assert run_recipe(clone, base="bare") == (0, 0, "")


def test_the_pre_commit_hook_refuses_a_commit_until_the_lock_is_updated(clone):
    (hook,) = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    assert hook["id"] in PAGE
    assert (hook["pass_filenames"], hook["language"]) == (False, "python")
    script(clone / ".git" / "hooks" / "pre-commit", f"exec {hook['entry']}")
    narrower(clone)
    refused = sh("git commit -qam 'narrower links'", clone)
    assert refused.returncode == 1
    assert "45 GB/s" in refused.stdout + refused.stderr
    done("tpsim check --update -q && git add tpsim.lock && git commit -qam 'narrower links, and what they move'", clone)
    changed = done("git show --stat --format= HEAD", clone)
    assert "tpsim.lock" in changed
    assert "hardware/pod.yaml" in changed


def test_the_hook_runs_for_scenarios_machines_models_and_the_lock():

    (hook,) = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    names = ("scenarios/pod.yaml", "model/config.json", "tpsim.lock", "my.yml")
    assert all(re.search(hook["files"], name) for name in names)
    assert not re.search(hook["files"], "notes.md")
