"""The commands of `hw`, one module each; cli.py finds them by name."""
