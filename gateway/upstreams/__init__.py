"""Talking to upstreams: an HTTP/1.1 client whose connections are counted, bounded in time and gone when cancelled."""
