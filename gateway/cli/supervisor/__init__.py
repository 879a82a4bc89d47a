"""The supervisor behind `penstock up`: a gateway and its engines as child processes."""
