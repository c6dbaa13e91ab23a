"""The reviewer's process: it alone holds the reviewer's signing key and the keys of reviewers' vendors.

It signs the entry of a verdict only if it reached that verdict itself, so no other part of Peergate can get another one
signed. Not guaranteed: that another program of the same user of the machine does not read the file of the key.
"""
