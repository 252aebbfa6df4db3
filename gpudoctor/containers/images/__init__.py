"""Images: names, registries, locks, builds, and whether one can run here."""
