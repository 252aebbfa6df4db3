"""As much of cupti-python as `gpudoctor profile` uses. Its GPU is a list of records."""
# mypy: ignore-errors
