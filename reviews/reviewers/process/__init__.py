"""The reviewer's process: it alone holds the reviewer's signing key and the keys of reviewers' vendors.

Not guaranteed: that another program of the same user of the machine does not read the file of the key.
"""
