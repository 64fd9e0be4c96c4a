"""What `measure.py` measures: a section is a function of these modules, which returns tables and checks."""
