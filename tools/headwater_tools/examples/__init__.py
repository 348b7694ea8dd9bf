"""Process files to read, to check and to simulate: `hw check tools/headwater_tools/examples/sp1.py`.

Each leaves its process in `process`; `build` makes variants of it. SP1 to SP4 are the topologies
that the founding thesis measures.
"""
