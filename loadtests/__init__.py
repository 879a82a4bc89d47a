"""Load tests: programs that start Penstock's processes, load them over HTTP and print what they measured."""
