"""The loads of `gpudoctor burn`: each works for some seconds, and verifies every result."""
