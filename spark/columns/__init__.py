"""The columns of the rows that a query reads: their types, and their values from Kafka's record batches.

columns       `Layout`: names, order and types of the columns
arrow         record batches to Arrow record batches, which Spark takes as rows
value_schema  the option `valueSchema`: the fields of a value
json_values   `valueFormat=json`: JSON values to Arrow columns

To change a column, open columns.py and arrow.py; to change how JSON becomes a type of Spark, open json_values.py.
"""
