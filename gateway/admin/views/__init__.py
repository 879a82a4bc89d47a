"""Documents behind the admin pages, over all processes."""
