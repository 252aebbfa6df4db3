"""Images: names, registries, locks, builds, and whether an image can run here."""
