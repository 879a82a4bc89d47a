"""How a gateway with workers grows with its cores."""
