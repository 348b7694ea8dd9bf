"""A whole site on one machine: making its folder, and running its parts in one terminal."""
