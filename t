big-3-nevr can't run now: it needs 9 nodes and may run on 3; it waits, and others go ahead of it
3.13s
