"""What the pages show for a terminal runs when it is pasted into a Mac's.

There it is zsh, which at a prompt takes ``#`` and what stands behind it for arguments, and refuses
a pattern that fits no file; the tools are BSD's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORMULA = ROOT / "launchd/homebrew/elasticd.rb"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
"""docs/commands.md, which is one of them, has the texts of ``--help``."""
EXAMPLES = sorted(ROOT.glob("elasticd/examples/*/job.toml"))
SHELLS = {"", "sh", "bash", "zsh", "shell", "console"}
"""What may stand behind the quotes that open a block of commands; without a word also outputs."""
COMMAND = (
    r"(\S*/)?(brew|cd|chmod|chown|cp|curl|date|defaults|diskutil|elasticctl|elasticd"
    r"|export(?= \w+=)|git|grep|hf|kill|launchctl|make|mkdir|mlx(_lm)?\.\w+|networksetup"
    r"|pip|pmset|ps|python3?|read|readlink|rm|sed|shasum|source|ssh|stat|sudo|tensorboard|timeout|tmutil|uv"
    r"|xargs|xcode-select)( \S|$)"
)
"""How a line begins that is one; in tables that are printed two spaces stand behind a word."""
NOT_TAKEN = {
    "a comment": r"(^|\s)#",
    "words in a column behind it": r"\S {2,}\S",
    "an odd quote": r"['\"]",
    "a command in backquotes": r"`",
    "a pattern of files": r"[][*?]",
    "brackets": r"(?<!\$)\((?!\))",
    "a placeholder that reads a file": r"<\w[^<>]*>",
    "a choice that is a pipe": r"\w\|\w",
    "a program's path by =": r"(^|\s)=\w",
    "an option that BSD's tool lacks": r"\b(sed -i(?! Q)|date -d|readlink -f|stat -c"
    r"|xargs -r|grep -\w*P)\b",
    "a program that a Mac lacks": r"(^|[|;&] ?|sudo )(timeout|sha256sum|nproc|tac|systemctl)\b",
    "a word of bash alone": r"\b(shopt|mapfile|read -p)\b",
}
"""How it looks outside of quotes, where ``not_taken`` has put a Q for what is in them."""
QUOTED = r"'[^']*'|\"(\$\([^()]*\)|[^\"`!])*\""


def not_taken(line: str) -> list[str]:
    """What of a command line a Mac's terminal takes otherwise than it is meant."""
    bare = re.sub(r"\$\([^()]*\)", "$", re.sub(QUOTED, "Q", line))
    return [what for what, looks in NOT_TAKEN.items() if re.search(looks, bare)]


def is_command(line: str) -> bool:
    return re.match(COMMAND, line) is not None


def in_blocks(text: str) -> Iterator[str]:
    """Command lines of fenced blocks; where a block has one, all of its lines."""
    for kind, body in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        lines = [line.strip() for line in body.splitlines()]
        whole = kind in SHELLS and any(map(is_command, lines))
        yield from (line for line in lines if whole or is_command(line))
        if kind in SHELLS and not whole:
            yield from (line for line in lines if re.search(r"^[^#].*\s# ", line))


def in_sentences(text: str) -> Iterator[str]:
    prose = re.sub(r"^ *```\w*\n.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from filter(is_command, re.findall(r"(?<!`)`([^`\n]+ [^`\n]+)`(?!`)", prose))


def in_caveats(formula: str) -> Iterator[str]:
    """As brew prints them, with a path in place of Ruby's."""
    (text,) = re.findall(r"<<~EOS\n(.*?)^ *EOS$", formula, re.MULTILINE | re.DOTALL)
    yield from filter(is_command, map(str.strip, re.sub(r"#\{\w+\}", "/opt", text).splitlines()))


def in_comments(text: str) -> Iterator[str]:
    """What stands alone in a comment's line, or behind a colon."""
    comments = re.findall(r"^# *(?:[^:\n]*: )?(.+)$", text, re.MULTILINE)
    yield from filter(is_command, comments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_macs_terminal_takes_what_a_page_shows(page: Path) -> None:
    text = page.read_text()
    shown = [*in_blocks(text), *in_sentences(text)]
    assert not {line: found for line in shown if (found := not_taken(line))}


def test_a_macs_terminal_takes_what_brew_says() -> None:
    shown = [*in_caveats(FORMULA.read_text())]
    assert len(shown) > 3
    assert not {line: found for line in shown if (found := not_taken(line))}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_a_macs_terminal_takes_what_an_example_says(file: Path) -> None:
    shown = [*in_comments(file.read_text())]
    assert "elasticctl submit job.toml --wait" in shown
    assert not {line: found for line in shown if (found := not_taken(line))}


def test_the_commands_of_the_pages_are_found() -> None:
    found = {page.stem: {*in_blocks(page.read_text())} for page in PAGES}
    assert {"make demo", "sudo .venv/bin/elasticctl service install"} <= found["README"]
    assert "elasticctl submit job.toml --wait" in found["commands"]
    assert "elasticctl submit job.toml --wait" in {
        *in_sentences((ROOT / "docs/operating.md").read_text())
    }


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("make demo  # shows it heal", "a comment"),
        ("elasticctl checkpoints list JOB    what nodes have", "words in a column behind it"),
        ("elasticctl jobs # one's own", "a comment"),
        ("elasticctl logs JOB --grep it's", "an odd quote"),
        ('elasticctl logs JOB --grep "`date`"', "a command in backquotes"),
        ("pip install elasticd[lm]", "a pattern of files"),
        ("elasticctl checkpoints verify JOB [--step N]", "a pattern of files"),
        ("rm *.toml", "a pattern of files"),
        ("elasticctl logs JOB --grep (a)", "brackets"),
        ("elasticctl drain <node>", "a placeholder that reads a file"),
        ("elasticctl local up|down", "a choice that is a pipe"),
        ("cd =make", "a program's path by ="),
        ("sed -i s/a/b/ job.toml", "an option that BSD's tool lacks"),
        ("sudo timeout 9 make demo", "a program that a Mac lacks"),
        ("read -p name", "a word of bash alone"),
    ],
)
def test_what_a_macs_terminal_does_not_take(line: str, what: str) -> None:
    assert what in not_taken(line)


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'elasticd[lm]' mlx==0.32.4",
        "elasticctl chaos partition 'node-0,node-1|node-2' --how close",
        'cp elasticd.rb "$(brew --repository you/elasticd)/Formula/"',
        "elasticctl logs JOB --raw > rank-0.log",
        "elasticctl cluster join - < token.txt",
        "sed -i '' s/a/b/ job.toml",
        "elasticctl logs JOB --grep '# of it'",
    ],
)
def test_what_a_macs_terminal_takes(line: str) -> None:
    assert not not_taken(line)
