"""Spark on this machine, for laptops, tests and the demo.

session  `session`: starts Spark, or finds the running one
java     finds the Java that Spark runs on
shims    wrapper scripts for the programs that Spark starts

To change a setting of the local Spark, open session.py.
"""
