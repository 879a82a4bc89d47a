"""Streams that another engine began: the gateway's signed order, and what it needs to give one."""
