"""Why a user's command fails or is slow: its words with the facts of where it ran, and repeats without suspected things."""
