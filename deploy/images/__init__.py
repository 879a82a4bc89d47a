"""Images without a daemon: built by buildah on a base of Debian's own packages, then started as a pod starts them."""
