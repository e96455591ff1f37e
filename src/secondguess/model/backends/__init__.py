"""What runs the model under test: a torch module, an exported program, an ONNX file, or any callable."""

from secondguess.model.backends.base import Backend, Layer
from secondguess.model.backends.opening import open_backend

__all__ = ["Backend", "Layer", "open_backend"]
