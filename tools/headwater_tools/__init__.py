"""Headwater's tools: everything behind the `hw` command."""
