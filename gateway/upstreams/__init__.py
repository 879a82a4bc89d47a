"""HTTP/1.1 client for upstreams, whose connections are counted, bounded in time and closed on cancellation."""
