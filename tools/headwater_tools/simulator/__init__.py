"""The simulator: real hosts on simulated flash, links, clocks and sensors; every history from one seed."""
