"""Machine code of a plan's kernels, from the candidate's text, of which nothing is run (docs/compile.md)."""

from compiler.check import CompilerRefusal
from compiler.kernels import Dropped, Image, Images, KernelError, build, prime

__all__ = ["CompilerRefusal", "Dropped", "Image", "Images", "KernelError", "build", "prime"]
