"""What the processes of one gateway on one machine have in common: counts, connections, metrics, answers, encoder."""
