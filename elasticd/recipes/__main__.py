"""``python -m elasticd.recipes job.toml``: a recipe in a world of one, without a daemon."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from elasticd.errors import UsageError
from elasticd.settings.job import JobSpec, load
from elasticd.train.beginning import HASH_VARIABLE, JOB_VARIABLE, hashes_are_fixed


def main() -> None:
    """Train what the named job.toml says.

    Raises:
        SystemExit: it is wrong: status 2, with one line.
    """
    path, spec = _job(sys.argv[1:])
    os.environ.update({**spec.job.env, **os.environ})
    if not hashes_are_fixed():  # fixed when Python starts
        fixed = {**os.environ, HASH_VARIABLE: "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], fixed)
    os.environ[JOB_VARIABLE] = str(path)
    os.chdir(path.parent)
    from elasticd.recipes import mlxlm
    from elasticd.train.steps import randomness

    randomness.seed_script(spec.train.seed)
    try:
        mlxlm.train(spec)
    except UsageError as error:
        raise _refused(error) from None


def _refused(error: UsageError) -> SystemExit:
    print(f"elasticd: {error}", file=sys.stderr)
    return SystemExit(error.exit_code)


def _job(words: list[str]) -> tuple[Path, JobSpec]:
    try:
        if len(words) != 1:
            raise UsageError("usage: python -m elasticd.recipes job.toml")
        path = Path(words[0]).resolve()
        path = path / "job.toml" if path.is_dir() else path
        spec = load(path)
        if spec.recipe is None:
            raise UsageError(f"{path}: has no [recipe]; start its script: {spec.job.entrypoint}")
    except UsageError as error:
        raise _refused(error) from None
    return path, spec


if __name__ == "__main__":
    main()
