"""Audits of similar answers: the evidence, the error budget and the calibration of match probabilities."""
