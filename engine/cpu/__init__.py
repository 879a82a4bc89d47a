"""Steps of few tokens on a CPU as one compiled function: a framework's operations would cost more than the work."""
