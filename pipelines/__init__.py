"""The pipeline: doors to outside libraries, the steps, and `run.py`, which is the whole flow."""
