"""``elasticctl cluster invite``: all machines of a host file join, by hand or over ssh."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.cli import clusterhome, invitations, overssh
from elasticd.cli.invitations import Answer, HereAndAlive, Invited, JoinOutcome
from elasticd.cli.options import Common, Home, Json, common, finite
from elasticd.cli.screen import print_json, say, warn
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.counting import counted
from elasticd.errors import NoDaemonError, OperationError
from elasticd.settings import config, hostfile, ownname
from elasticd.settings.config import split_address
from elasticd.settings.hostfile import HostList
from elasticd.shell.network import interfaces
from elasticd.shell.storage import papers
from elasticd.trust.member import MemberPapers

BY_HAND_SECONDS = 3600.0
"""How long what is printed can be used."""
_MORE_SECONDS = 60.0
HostSeconds = Annotated[
    float,
    typer.Option(
        "--seconds",
        min=1,
        max=3600,
        callback=finite,
        help="With --run: how long each host may take.",
    ),
]
AGAIN = "say the same command again when that is mended: who has joined is left alone"


def invite(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="HOSTFILE",
            help="The hosts: the JSON of 'mlx.launch --hostfile', or text with a host a line.",
        ),
    ],
    run: Annotated[
        bool, typer.Option("--run", help="Have them join now, over ssh; else print how to.")
    ] = False,
    seconds: HostSeconds = 120.0,
    program: Annotated[
        str,
        typer.Option(
            "--elasticctl",
            metavar="PATH",
            help="What elasticctl is called on the hosts. A relative path begins at the account's"
            " home folder.",
        ),
    ] = "elasticctl",
    home: Home = None,
    json: Json = False,
) -> None:
    """Let all machines of a host file join the cluster of this node.

    It prints for each of them the command that is to be run there, with one token for all, which
    can be used for an hour. With --run it runs these itself, over ssh: that must work without a
    password, and elasticctl must be installed there. The token goes to them on standard input. A
    host that fails stops no other. Say the command again when its cause is mended: hosts whose
    nodes are alive in the cluster are left alone, and so is this machine.

    A text file has a host a line: 'mac-2', 'me@mac-2', '10.0.0.2'; '#' begins a comment. 'mac-2:4'
    and 'mac-2 slots=4' mean four nodes there, mac-2-1 to mac-2-4, each with a home of its own
    (~/elasticd-mac-2-1) and a port of its own (7070 and up). From a JSON file the first of a
    host's "ips" is where its daemon listens; "rdma" is not used.

    Exit codes: 1 some host did not join, 2 the file is wrong and nothing was done.

    \b
    Examples:
      elasticctl cluster invite hosts.json
      elasticctl cluster invite hosts.json --run
      elasticctl cluster invite macs.txt --run --elasticctl elasticd/.venv/bin/elasticctl
    """
    options = common(context, home, json)
    found = hostfile.load(file)
    folder = clusterhome.member_home(options)
    with clusterhome.damage_told():
        member = papers.read(folder)
    planned = invitations.plan(found, _here(options, folder, member, asked=run), str(file))
    wanted = [each for each in planned if each.state == "invited"]
    if not options.json:
        _tell(found, planned)
    if not wanted:
        if options.json:
            print_json({"nodes": [each.as_json() for each in planned]})
        else:
            say("nobody is left to be invited")
    elif run:
        _run(options, folder, member, planned, seconds, program)
    else:
        _print(options, folder, member, planned, program)


def _here(options: Common, folder: Path, member: MemberPapers, *, asked: bool) -> HereAndAlive:
    """``asked``: the daemon has to answer, since it takes the token at once.

    Raises:
        NoDaemonError: it doesn't.
    """
    settings = config.load(folder)
    names = {*ownname.machine_names(), *map(_host_of, settings.addresses)}
    names.update(*interfaces.addresses().values())
    alive: dict[str, str] = {}
    try:
        answer = options.client.request(ShowStatus(ended=0))
    except NoDaemonError:
        if asked:
            raise
    else:
        alive = {
            node["id"]: node["address"]
            for node in answer["nodes"]
            if node["state"] != "dead" and node["id"] != member.node
        }
    return HereAndAlive(member.node, frozenset(names), alive)


def _host_of(address: str) -> str:
    return split_address(address)[0]


def _tell(found: HostList, planned: tuple[Invited, ...]) -> None:
    """What is not done, and why."""
    for note in found.unused:
        warn(note)
    for each in planned:
        if each.state == "this":
            warn(f"{each.ssh}: is this node")
        elif each.state == "member":
            warn(f"{each.ssh}: {each.node} is a member already")


def _print(
    options: Common,
    folder: Path,
    member: MemberPapers,
    planned: tuple[Invited, ...],
    program: str,
) -> None:
    wanted = [each for each in planned if each.state == "invited"]
    made = clusterhome.open_token(folder, member, BY_HAND_SECONDS, len(wanted))
    token = made.token.text()
    if options.json:
        nodes = [
            {**each.as_json(), "command": each.command(program, token)}
            if each.state == "invited"
            else each.as_json()
            for each in planned
        ]
        print_json(
            {"nodes": nodes, "token": token, "until_unix": made.until_unix, "uses": made.uses}
        )
        return
    for each in wanted:
        say(f"# on {each.label}")
        say(each.command(program, token))
    can = counted(made.uses, "node")
    warn(f"until {clusterhome.moment(made.until_unix)} {can} can join with that token")
    if text := invitations.of_services(planned):
        warn(text)
    made.warn_of_troubles(folder)


def _run(
    options: Common,
    folder: Path,
    member: MemberPapers,
    planned: tuple[Invited, ...],
    seconds: float,
    program: str,
) -> None:
    """Raises OperationError: not all of them have joined."""
    overssh.check()
    wanted = [each for each in planned if each.state == "invited"]
    turns = math.ceil(len(wanted) / overssh.AT_ONCE)
    made = clusterhome.open_token(folder, member, turns * seconds + _MORE_SECONDS, len(wanted))
    if not options.json:
        made.warn_of_troubles(folder)
    outcomes: dict[Invited, JoinOutcome] = {}

    def ended(at: int, answer: Answer) -> None:
        who = wanted[at]
        outcomes[who] = invitations.outcome(who, answer, member.cluster_id, program)
        if not options.json:
            _say_outcome(who, outcomes[who], f"{len(outcomes)} of {len(wanted)}")

    try:
        calls = [(each.ssh, f"{each.command(program, '-')} --json") for each in wanted]
        overssh.run(calls, f"{made.token.text()}\n", seconds, ended)
    except KeyboardInterrupt:
        warn(f"what has begun on a host may still come to its end there; {AGAIN}")
        raise
    failed = [each.label for each in wanted if outcomes[each].state == "failed"]
    if options.json:
        print_json({"nodes": [_as_json(each, outcomes.get(each)) for each in planned]})
    else:
        for text in invitations.what_is_left([(each, outcomes[each]) for each in wanted]):
            say(text)
        if note := invitations.of_services(planned):
            warn(note)
    if failed:
        did = counted(len(failed), "node has", "nodes have")
        raise OperationError(f"{did} not joined: {', '.join(failed)}; {AGAIN}")


def _say_outcome(who: Invited, what: JoinOutcome, progress: str) -> None:
    if what.state == "failed":
        warn(f"{progress}  {who.label}: {what.error}")
        return
    done = "joined" if what.state == "joined" else "is a member already"
    runs = "its daemon runs" if what.running else "its daemon does not run"
    say(f"{progress}  {who.label}: {what.node} {done}; it listens on {what.listen}; {runs}",
        flush=True)  # fmt: skip


def _as_json(who: Invited, what: JoinOutcome | None) -> dict[str, Any]:
    if what is None:
        return who.as_json()
    told = {"host": who.ssh, "node": what.node or who.node, "state": what.state}
    if what.state == "failed":
        return {**told, "error": what.error}
    return {**told, "home": what.home, "listen": what.listen, "running": what.running}
