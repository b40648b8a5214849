"""What runs in a trainer in place of a script: the kinds of ``[recipe]``. No daemon imports it."""
