"""Why a training failed: what its checks found, by class of cause, as a chain of evidence and a list of actions."""
