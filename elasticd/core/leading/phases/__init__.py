"""The phases of one job under its leader, each with the state that is its own alone.

    orienting ──nothing is there──▶ waiting
        └───────a world is there──▶ running

    waiting ──enough trainers──▶ freezing ──all have answered──▶ forming ──all ready──▶ running
       ▲                            ▲  ▲                            │                      │
       │                            │  └────────── a fault ─────────┘                      │
       └──── fewer than world.min ──┴─────────── a fault, or a trainer that may enter ─────┘

A phase has what it hears (``on_…``), ``on_fault``, ``go_on`` (what can be done now), ``tick`` and
``deadlines``. What follows from these it returns (moves.py); the driver carries it out.
"""
