"""Reviews that somebody asks for: one question, a full review of files, or claims against evidence.

``ask_policy.py`` decides what is asked at all; ``file_reading.py`` what is read; ``model_request.py`` what a model is
sent; ``answer_forms.py`` what it may answer; ``citations.py`` whether its evidence is there; ``rules/`` what is found
without a model; ``request_record.py`` and ``request_audit.py`` how it stands in a trail.
"""
