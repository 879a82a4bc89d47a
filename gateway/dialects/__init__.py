"""Other APIs on the chat pipeline: each dialect translates requests and answers at the edge, and at a deployment."""
