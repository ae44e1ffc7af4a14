"""`trireme port script.py`: turns a script for Ray Train into one for Trireme. Needs libcst: trireme[port]."""
