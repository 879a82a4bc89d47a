"""The admin listener: pages, their assets and live feed, drains and routes."""
