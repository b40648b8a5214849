"""What collective engines say, of every backend: only an engine's own two sides look inside.

Each backend has its words in a module of its own.
"""

from __future__ import annotations

from elasticd.core.words import ring

EngineToLeader = ring.RingToLeader
"""What members' sides say to the leader's."""
EngineToMember = ring.RingToMember
EngineOrder = ring.FormRing
"""By which a warm reducer becomes one of a world."""
EngineEffect = ring.RingEffect
"""What an engine wants done with its process, beside what is wanted of any."""
EngineEvent = ring.RingEvent
"""How far its process has come, where it can't say so itself."""
