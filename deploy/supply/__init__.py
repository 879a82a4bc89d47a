"""Supply chain: locks with hashes, software bills of materials, reproducible wheels, and the reach of upper bounds."""
