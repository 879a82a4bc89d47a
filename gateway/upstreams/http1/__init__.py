"""HTTP/1.1 as the client uses it: deadlines, framing, codings and server-sent events."""
