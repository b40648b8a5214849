"""The phases of one job under its leader, each with the state that is its own alone.

    orienting ──nothing is there──▶ waiting
        └───────a world is there──▶ running

    waiting ──enough trainers──▶ freezing ──all have answered──▶ forming ──all ready──▶ running
       ▲                            ▲  ▲                            │                      │
       │                            │  └────────── a fault ─────────┘                      │
       └──── fewer than world.min ──┴─────────── a fault, or a trainer that may enter ─────┘

    running ──the last step is committed──▶ closing ──it is stored, all have left──▶ finished
                                               └──a fault, or a lost shard──▶ waiting, freezing

A phase has what it hears (``on_…``), ``on_fault``, ``go_on`` (what can be done now), ``tick`` and
``deadlines``. What follows from these it returns (moves.py); the stage carries it out.
What running and closing share is in whole.py: the world of both is one that all members are in.
"""
