from collections.abc import Mapping

from triton import JITFunction
from triton.backends.compiler import GPUTarget

class Metadata:
    shared: int

class CompiledKernel:
    metadata: Metadata
    asm: Mapping[str, str]

class ASTSource:
    def __init__(
        self,
        fn: JITFunction[..., None],
        signature: dict[str, str],
        constexprs: dict[tuple[int], int],
        attrs: dict[tuple[int], list[list[str | int]]],
    ) -> None: ...

def compile(src: ASTSource, *, target: GPUTarget, options: dict[str, int]) -> CompiledKernel: ...
