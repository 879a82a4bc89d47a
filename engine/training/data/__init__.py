"""Generated training and test data of the bundled models."""
