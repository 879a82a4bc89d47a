"""The engine beside other engines on real checkpoints, and beside a neighbour that takes a part of the machine."""
