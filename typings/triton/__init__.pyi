from triton.compiler import compile as compile

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

class JITFunction(Generic[P, R]):
    arg_names: list[str]
    # Within another kernel.
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]: ...

def jit(fn: Callable[P, R]) -> JITFunction[P, R]: ...
