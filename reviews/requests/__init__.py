"""Reviews that somebody asks for: one question, a full review of files, or claims against evidence.

``policy.py`` decides what is asked at all; ``reading.py`` what is read; ``asking.py`` what a model is sent;
``forms.py`` what it may answer; ``places.py`` whether its evidence is there; ``rules/`` what is found without a model;
``record.py`` and ``audit.py`` how it stands in a trail.
"""
