"""``elasticctl cluster``: make a cluster, let others in, join one, see who is in it.

All but ``revoke`` and ``rotate`` works on the home's files and needs no daemon here. What needs
cryptography is loaded by the command that does: every other one should start quickly.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.cli import asking, clusterhome, inviting, joinedhome, output, rotation
from elasticd.cli.asking import Yes
from elasticd.cli.clusterhome import damage_told, member_home, moment, own_home
from elasticd.cli.options import Common, Home, Json, Node, common, finite
from elasticd.cli.screen import print_json, say, warn
from elasticd.cli.tables import Table
from elasticd.client.processes import find_daemon
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.nodes import PutOutNode
from elasticd.counting import counted
from elasticd.errors import NoDaemonError, UsageError
from elasticd.settings import config
from elasticd.settings.config import NodeConfig, split_address
from elasticd.settings.localhomes import begun_anew, is_local
from elasticd.settings.places import FILE_NAME
from elasticd.shell.network import ownaddresses
from elasticd.shell.storage import issuing, papers, settingsfile
from elasticd.trust import tokens
from elasticd.trust.issuing import Register
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import Issued
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)

ISSUED = Table(
    ("node", "state", "since", "certificate", "address"), drops=("address", "since", "certificate")
)
MOST_HOURS = 24.0 * 30
MOST_USES = 1024
SHORT_ID = 12
"""Letters of a cluster's id that tell it from others."""

NodeIdOption = Annotated[
    str | None,
    typer.Option(
        "--node-id",
        metavar="ID",
        show_default=False,
        help="What this node is called in the cluster. Default: as elasticd.toml says, else the"
        " host's name.",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        show_default=False,
        help="Where its daemon listens for the others. Default: as elasticd.toml says, else"
        " 0.0.0.0:7070, which is all of this machine's addresses; the daemon tells the others which"
        " there are. 'join' takes :PORT, too.",
    ),
]


@app.callback(invoke_without_command=True)
def group(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Make a cluster of several machines, and let others in.

    \b
    On the first machine:
      elasticctl cluster init
      elasticctl service install
      elasticctl cluster token
    On each other one:
      elasticctl service install
      elasticctl cluster join TOKEN
    Or, for all hosts of a file, on the first machine:
      elasticctl cluster invite hosts.json
    """
    common(context, home, json)
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command(short_help="Make a new cluster, whose first member is this node.")
def init(
    context: typer.Context,
    node_id: NodeIdOption = None,
    listen: Listen = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Make a new cluster, whose first member is this node. This node lets others in.

    It makes the cluster's key and this node's certificate, in HOME/cluster, and writes where the
    daemon listens into elasticd.toml. A daemon that runs begins anew with that. Keep a copy of
    HOME/cluster/authority.key in a safe place: without it nobody else can join.

    On a node that has made a cluster, and whose own certificate or key is damaged since, it makes
    those anew. The cluster stays.

    \b
    Examples:
      elasticctl cluster init
      elasticctl cluster init --listen 10.0.0.1:7070 --node-id mac-1
    """
    from elasticd.shell.storage import founding

    options = common(context, home, json)
    folder = own_home(options)
    settings = config.load(folder)
    node = clusterhome.checked_id(node_id, settings)
    if clusterhome.damage_of(folder) is not None and papers.makes_members(folder):
        _init_again(options, folder, settings, node)
        return
    if is_local(folder) and not papers.is_member(folder):
        raise UsageError(
            f"{folder} is a node of a local cluster; it becomes a member again by"
            f" {begun_anew(folder)}"
        )
    begun = papers.is_member(folder)
    if begun and not (clusterhome.is_loopback(settings.listen) and clusterhome.is_lone(folder)):
        raise UsageError(
            f"{folder} is a member of a cluster already ('elasticctl cluster token' lets others in;"
            f" {clusterhome.leaving(folder)})"
        )
    if begun and (own := papers.read(folder).node) != node:
        raise UsageError(
            f"--node-id: this node is {own!r} already, as its certificate says"
            f" ({clusterhome.leaving(folder)})"
        )
    where = _listen_of_first(folder, settings, listen)
    clusterhome.make_members(folder)
    settingsfile.change(folder, {"node_id": node, "listen": where})
    at = ownaddresses.found(config.load(folder)).addresses
    member = papers.read(folder) if begun else founding.found(folder, node)
    if not options.json:
        say(f"made cluster {_short(member)}; this node is {node}, and lets others in")
        say(_listens(where, at))
    runs = _begin_anew(folder)
    if options.json:
        print_json(_told(folder, member, where, at, runs))
        return
    if all(map(clusterhome.is_loopback, at)):
        warn(f"{at[0]} is reached from this machine only: --listen names another address")
    say(_then(folder, runs))
    say("to let another machine in: 'elasticctl cluster token'")


def _init_again(options: Common, home: Path, settings: NodeConfig, node: NodeId) -> None:
    """The node that makes members gets a new certificate of its cluster, as its own is damaged."""
    from elasticd.shell.storage import founding

    clusterhome.make_members(home)
    with damage_told():
        member = founding.make_anew(home, node, time.time())
    runs = _begin_anew(home)
    if options.json:
        at = ownaddresses.found(settings).addresses
        print_json(_told(home, member, settings.listen, at, runs))
        return
    say(f"{member.node} has a new certificate of cluster {_short(member)}, and lets others in")
    say(_then(home, runs))


def _listen_of_first(home: Path, settings: NodeConfig, given: str | None) -> str:
    written = "listen" in settingsfile.keys_in(home / FILE_NAME)
    if given is None and written and not papers.is_member(home):
        given = settings.listen
    if given is None:
        port = split_address(settings.listen)[1]
        given = clusterhome.listen_of_first(port, ownaddresses.hosts())
    return clusterhome.checked_listen(given)


@app.command(short_help="Print a token with which another machine joins.")
def token(
    context: typer.Context,
    hours: Annotated[
        float,
        typer.Option(
            "--hours", min=0.01, max=MOST_HOURS, callback=finite, help="How long it can be used."
        ),
    ] = 1.0,
    uses: Annotated[
        int, typer.Option("--uses", min=1, max=MOST_USES, help="How many nodes may join with it.")
    ] = 1,
    home: Home = None,
    json: Json = False,
) -> None:
    """Print a token with which another machine joins.

    Whoever has it can become a member, and members run each other's code: give it to nobody else.
    It works where the cluster was made ('cluster init'). No daemon is needed to make it, but for
    the other machine to join the daemon must run.

    \b
    Examples:
      elasticctl cluster token
      elasticctl cluster token --uses 3 --hours 0.5
    """
    options = common(context, home, json)
    folder = member_home(options)
    with damage_told():
        member = papers.read(folder)
    made = clusterhome.open_token(folder, member, hours * 3600, uses)
    text = made.token.text()
    if options.json:
        told = {"token": text, "until_unix": made.until_unix, "uses": uses}
        print_json({**told, "addresses": list(made.token.addresses)})
        return
    say(text, flush=True)
    warn(
        f"until {moment(made.until_unix)} {counted(uses, 'node')} can join with it: 'elasticctl"
        " cluster join TOKEN' there"
    )
    made.warn_of_troubles(folder)


app.command("invite", short_help="Let all machines of a host file join.")(inviting.invite)


@app.command(short_help="Become a member of a cluster.")
def join(
    context: typer.Context,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN",
            help="What 'elasticctl cluster token' printed; '-' reads it from standard input.",
        ),
    ],
    node_id: NodeIdOption = None,
    listen: Listen = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Become a member of the cluster of which TOKEN is.

    It makes this node's key, which never leaves it, and gets a certificate from the node that made
    the token. If nobody answers where that says, it is looked for by Bonjour, where
    elasticd[discovery] is installed. If it fails it can be repeated, with the same token. What you
    have in elasticd.toml stays, but for the node's id, where it listens, and on what all nodes must
    agree. A daemon that runs begins anew as a member, and trains what there is. A node that is the
    only one of its cluster leaves it.

    A member whose HOME/cluster is damaged joins again: that is put aside, never removed. It keeps
    its id if its key is sound. Else its id is another node's, for all that the cluster knows, and
    the message says how to put that out.

    \b
    Examples:
      elasticctl cluster join elasticd1-…
      elasticctl cluster join - --node-id mac-2 < token.txt
    """
    options = common(context, home, json)
    taken = tokens.read(sys.stdin.readline() if text == "-" else text)
    folder = own_home(options)
    settings = config.load(folder)
    node = clusterhome.checked_id(node_id, settings)
    done = joinedhome.join(folder, settings, taken, node, listen)
    settings = config.load(folder)
    said, at = settings.listen, ownaddresses.found(settings).addresses
    if options.json:
        runs = _begin_anew(folder)
        aside = None if done.aside is None else str(done.aside)
        told = _told(folder, done.member, said, at, runs)
        print_json({**told, "already": done.issuer is None, "aside": aside})
        return
    if done.aside is not None:
        say(f"what was damaged is in {done.aside}")
    if done.issuer is None:
        say(f"{node} is a member of cluster {_short(done.member)} already")
    else:
        say(f"{node} joined cluster {_short(done.member)} by {done.issuer}")
        say(_listens(said, at), flush=True)
    say(_then(folder, _begin_anew(folder)))


@app.command(short_help="Put a node out of the cluster, at once and for good.")
def revoke(
    context: typer.Context, node: Node, yes: Yes = False, home: Home = None, json: Json = False
) -> None:
    """Put a node out of the cluster: all other nodes take its certificate no more, at once.

    For a machine that was stolen or sold. It is forgotten by none of them, also after restarts;
    those that don't run now hear it when they come back. To let the machine in again, join with a
    new token. What it has stored stays on its own disk. A node that only rests is drained:
    'elasticctl drain NODE'.

    At a terminal it asks first, as it can't be undone. A script is not asked, nor who says --yes
    or --json.

    \b
    Examples:
      elasticctl cluster revoke mac-3
      elasticctl cluster revoke mac-3 --yes
    """
    options = common(context, home, json)
    question = "Put {} out of the cluster for good? Open join tokens end, too."
    asking.confirm(question, node, lambda: _nodes(options), asks=not (yes or options.json))
    changed = options.client.change(PutOutNode(NodeId(node)))
    if options.json:
        print_json(to_plain(changed))
        return
    say(f"{changed.id} {changed.state}: no node of the cluster takes its certificate any more")


def _nodes(options: Common) -> list[str]:
    return [str(each["id"]) for each in options.client.request(ShowStatus(ended=0))["nodes"]]


@app.command(short_help="Give every member a new key and a new certificate.")
def rotate(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Give every member a new key and a new certificate, and have the old ones refused.

    Jobs go on, and no daemon is restarted. Say it on the node that lets others in; elsewhere it is
    refused, and you are told where. Nodes that are away get theirs when they are back: until then
    they may do nothing else.

    What has begun goes on without this command, also after Ctrl-C and whatever fails: say it again
    to see how far it is. When all nodes that are there have renewed, old certificates are refused.
    The cluster's own key stays. If somebody has had a member's key, put that node out first
    ('elasticctl cluster revoke NODE').

    \b
    Examples:
      elasticctl cluster rotate
      elasticctl cluster rotate --json
    """
    options = common(context, home, json)
    rotation.run(options)


@app.command("list", short_help="Show who is in the cluster, as this node knows.")
def show(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Show this node's cluster and certificate, who has joined here, and who was put out.

    Of each node that has joined, since when it is a member and of when its certificate is. 'old'
    is one that was not renewed by 'elasticctl cluster rotate' yet.

    Only the node that makes members knows who has joined. 'elasticctl nodes' shows which nodes
    live.

    \b
    Examples:
      elasticctl cluster list
      elasticctl cluster list --json
    """
    from elasticd.trust import authority

    options = common(context, home, json)
    folder = member_home(options)
    with damage_told():
        member = papers.read(folder)
        revoked, makes = papers.read_revoked(folder), papers.makes_members(folder)
        renewal = papers.read_renewal(folder)
    given = issuing.read(folder)
    until = authority.good_until(member.certificate)
    own = authority.issued(member.certificate)
    out = _put_out(member, own, given, revoked)
    nodes = [
        {
            "node": node,
            "since_unix": each.at_unix,
            "certificate_unix": shown.made_unix,
            "old": renewal.is_due(shown),
            "address": each.address,
            "revoked": revoked.holds(shown),
        }
        for node, each in sorted(given.items())
        for shown in (Issued(member.name_of(node), each.serial),)
    ]
    if options.json:
        print_json(
            {
                "cluster": member.cluster_id,
                "node": member.node,
                "makes_members": makes,
                "since_unix": own.made_unix,
                "old": renewal.is_due(own),
                "good_until_unix": until.timestamp(),
                "issued": nodes,
                "revoked": out,
            }
        )
        return
    say(f"cluster {_short(member)}; this node is {member.node}")
    say(f"its certificate is of {moment(own.made_unix)}, and good until {until.date()}")
    if renewal.is_due(own):
        say("it is old: this node renews it when it reaches the node that lets others in")
    say("it lets others in" if makes else "another node lets others in")
    if nodes:
        say()
        rows = [_row(each) for each in nodes]
        output.print_table(ISSUED, rows)
    if out:
        say()
        say(f"put out: {', '.join(str(each['node'] or each['name']) for each in out)}")


def _row(node: Mapping[str, Any]) -> tuple[object, ...]:
    state = "put out" if node["revoked"] else "joined"
    made = moment(node["certificate_unix"]) + (" (old)" if node["old"] else "")
    return node["node"], state, moment(node["since_unix"]), made, node["address"]


def _put_out(
    member: MemberPapers, own: Issued, given: Register, revoked: Revoked
) -> list[dict[str, str | None]]:
    """Who was, and hasn't joined anew since, as far as is known here. Certificates name no node, so
    only of those that are known here the id can be said."""
    names = {member.name_of(node): node for node in (member.node, *given)}
    newest = [Issued(member.name_of(node), each.serial) for node, each in given.items()]
    back = {each.name for each in (own, *newest) if not revoked.holds(each)}
    out = sorted(revoked.serials.keys() - back)
    return [{"node": names.get(name), "name": name} for name in out]


def _begin_anew(home: Path) -> bool:
    """A daemon that runs is to know its new papers. Whether one does."""
    from elasticd.cli.service import begin_anew

    if find_daemon(home) is None:
        return False
    try:
        begin_anew(home)
    except NoDaemonError:
        return False
    return True


def _then(home: Path, runs: bool) -> str:
    if runs:
        return "its daemon runs, as a member"
    if find_daemon(home) is not None:
        return f"its daemon does not answer: {clusterhome.restarting(home)}"
    return clusterhome.starting(home)


def _listens(where: str, at: Sequence[str]) -> str:
    """What was written of that, and what follows from it."""
    text = f"it listens on {where} (elasticd.toml)"
    return text if at == (where,) else f"{text}; others reach it at {', '.join(at)}"


def _told(
    home: Path, member: MemberPapers, listen: str, at: Sequence[str], runs: bool
) -> dict[str, Any]:
    return {
        "cluster": member.cluster_id,
        "node": member.node,
        "home": str(home),
        "listen": listen,
        "addresses": list(at),
        "running": runs,
    }


def _short(member: MemberPapers) -> str:
    return member.cluster_id[:SHORT_ID]
