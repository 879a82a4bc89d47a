"""What a first deploy needs: images, compose, Kubernetes, dashboards and alerts."""
