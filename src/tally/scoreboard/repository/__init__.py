"""What is kept where: one file for each table or kind of key.

Trouble of the drivers stops here, in the domain's words.
"""
