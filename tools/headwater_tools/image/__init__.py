"""The image builder: everything that boards run is built here, for virtual and real boards alike.

`sources` finds the modules that a board needs, `plain` and `unused` strip what only others use, `linker` and
`names` link the core and rename, `builder` compiles and makes the images, `profiles` are the kinds of boards.
"""
