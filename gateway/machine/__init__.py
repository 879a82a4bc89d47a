"""State that the processes of one gateway on one machine share: counts, connections, metrics, answers, encoder."""
