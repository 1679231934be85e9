"""The door to models: where a checkpoint comes from, and what lies in its folder.

`sources.py` turns a model id into a folder (bundled, local, or from the Hub), `folders.py`
says what the folder holds and refuses what must not be loaded, `hashes.py` identifies its
files, `shapes.py` says how much work the model is. How weights are made smaller is not known
here: `quantize` goes on from what comes out.
"""

from pipelines.models.folders import GGUF, RECORD_NAME, read_folder, verify, weight_files
from pipelines.models.shapes import model_shape
from pipelines.models.sources import BUNDLED_ID, resolve

__all__ = [
    "BUNDLED_ID",
    "GGUF",
    "RECORD_NAME",
    "model_shape",
    "read_folder",
    "resolve",
    "verify",
    "weight_files",
]
