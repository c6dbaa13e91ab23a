"""What code can find in files without a model: few rules, each with the lines that show it.

They find what is certainly there. That nothing was found says nothing about the work, and every answer says so.
"""
