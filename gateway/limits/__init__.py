"""Enforcement of limits without policy: limiter, permits, fair queue, adaptive limit, lanes, memory for bodies."""
