"""Draw every picture that follows from the code, and write the pages about them: `python -m docs.pictures`."""

from docs.pictures import architecture, crashes, effects, life, modes, states

for module in (architecture, crashes, effects, life, modes, states):
    module.write()
