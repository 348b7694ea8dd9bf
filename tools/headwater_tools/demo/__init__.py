"""The main job from end to end with real parts, and with what goes wrong in the field: `hw demo`."""
