"""The record of each request, and the views and recordings made from it."""
