"""Metrics, the event-loop meter, and the recorder of finished requests."""
