"""Machine code of a plan's kernels, from the candidate's text, of which nothing is run (docs/compile.md)."""

from compiler.check import CompilerRefusal
from compiler.images import Cache, Image
from compiler.kernels import Dropped, Images, KernelError, build, prime

__all__ = ["Cache", "CompilerRefusal", "Dropped", "Image", "Images", "KernelError", "build", "prime"]
