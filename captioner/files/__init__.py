"""Files written whole or not at all, and only where they are meant to be.

New content goes into a file with a random name in the same folder, which must not exist yet, and takes its
place with one rename. The folder is held open meanwhile. In a folder that others can write to, a link planted
at a name that can be guessed then leads nowhere: links are followed only in the path that the user gave.
Zip archives are read within limits.
"""
