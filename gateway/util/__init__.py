"""Small helpers without knowledge of the gateway: threads, private files, bounded mappings."""
