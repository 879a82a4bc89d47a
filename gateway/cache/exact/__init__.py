"""The exact tier: fingerprints of requests, entries, eviction and answers shared while they stream."""
