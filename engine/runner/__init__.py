"""Model runners: how a scheduled step is executed on a CPU or a GPU."""
