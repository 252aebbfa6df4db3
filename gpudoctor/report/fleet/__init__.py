"""The formats of a report about many machines."""
