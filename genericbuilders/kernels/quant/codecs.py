"""Vectors to bytes and back.

There are two ways back. `VectorCodec.decode` gives the vectors themselves, in any precision: the definition.
`VectorCodec.unpack` is for attention: float32 elements that have not been multiplied by their vector's factor, and,
where a vector was turned, have not been turned back. Queries are turned instead, and sums of values at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.kernels.quant.formats import Coding, VectorFormat
from genericbuilders.kernels.quant.lloyd_max import MAX_BITS, lloyd_max
from genericbuilders.kernels.quant.packing import pack, packed_size, unpack
from genericbuilders.kernels.quant.rotation import rotation

__all__ = ["LevelTable", "VectorCodec", "make_codec"]

FLOAT8_MAX = 448.0
FLOAT16_MAX = 65504.0
INT8_MAX = 127.0


@dataclass(frozen=True, eq=False)
class LevelTable:
    """What the codes of turned vectors stand for, as compiled kernels read it.

    Attributes:
        levels: ``[2 ** MAX_BITS]`` float32, zeros behind those that there are.
        thresholds: ``[2 ** bits - 1]`` float64: a coordinate's code is the number of thresholds below it.
        transposed_turn: ``[size, size]`` float64: the rotation's transpose.
    """

    levels: Tensor
    thresholds: Tensor
    transposed_turn: Tensor


class VectorCodec(ABC):
    """Vectors of one size and format as bytes.

    Attributes:
        size: elements of a vector.
        format: of its bytes.
        device: where the vectors are.
        num_element_bytes: of a vector's bytes, those before its factor.
        tensor_factor: what elements are multiplied by where vectors have no factor of their own.
        table: what codes stand for; ``None`` where elements are numbers themselves.
    """

    def __init__(
        self, size: int, vector_format: VectorFormat, device: torch.device, tensor_factor: float = 1.0
    ) -> None:
        self.size = size
        self.format = vector_format
        self.device = device
        self.tensor_factor = tensor_factor
        self.table: LevelTable | None = None
        self.num_element_bytes: int = packed_size(size, vector_format.bits)

    @abstractmethod
    def encode(self, vectors: Tensor) -> Tensor:
        """The bytes of vectors.

        Args:
            vectors: ``[..., size]``, any floating-point type.

        Returns:
            ``[..., num_bytes]`` uint8.
        """

    @abstractmethod
    def decode(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors that bytes stand for.

        Args:
            packed: ``[..., num_bytes]`` uint8.
            dtype: float32 or float64, to compute in.

        Returns:
            ``[..., size]``.
        """

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor | None]:
        """``[..., size]`` float32 elements, and ``[...]`` float32 factors by which they are still to be multiplied."""
        return self._elements(packed[..., : self.num_element_bytes]), self._factors(packed)

    def turn(self, queries: Tensor) -> Tensor:
        """Queries ``[..., size]`` as unpacked keys want them: if both are turned, inner products do not change."""
        return queries

    def turn_back(self, sums: Tensor) -> Tensor:
        """Sums of unpacked vectors, ``[..., size]``, as sums of the vectors themselves."""
        return sums

    @abstractmethod
    def _elements(self, packed: Tensor) -> Tensor:
        """``[..., size]`` float32 from the bytes of the elements alone."""

    def _factors(self, packed: Tensor) -> Tensor | None:
        if not self.format.factor_bytes:
            return None
        behind = packed[..., self.num_element_bytes : self.num_element_bytes + self.format.factor_bytes]
        # A copy, since a factor need not lie where its type may.
        return behind.clone(memory_format=torch.contiguous_format).view(self._factor_dtype)[..., 0].float()

    def _join(self, elements: Tensor, factors: Tensor) -> Tensor:
        return torch.cat((elements, factors[..., None].to(self._factor_dtype).contiguous().view(torch.uint8)), -1)

    @property
    def _factor_dtype(self) -> torch.dtype:
        return torch.float16 if self.format.factor_bytes == 2 else torch.float32


class _Float8(VectorCodec):
    """Each element as float8 e4m3, after division by one factor for all vectors. What is too large is cut off."""

    @override
    def encode(self, vectors: Tensor) -> Tensor:
        return _to_float8(vectors.to(_working(vectors.dtype)) / self.tensor_factor)

    @override
    def decode(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        return packed.view(torch.float8_e4m3fn).to(dtype) * self.tensor_factor

    @override
    def _elements(self, packed: Tensor) -> Tensor:
        elements = _from_float8(packed)
        return elements if self.tensor_factor == 1.0 else elements.mul_(self.tensor_factor)


class _Scaled(VectorCodec):
    """Each element as float8 or int8, after division by a factor of the vector's own, so that its largest one fits."""

    @override
    def encode(self, vectors: Tensor) -> Tensor:
        vectors = vectors.to(_working(vectors.dtype))
        is_float8 = self.format.coding is Coding.FLOAT8
        factors = (vectors.abs().amax(-1) / (FLOAT8_MAX if is_float8 else INT8_MAX)).float()
        scaled = vectors / torch.where(factors == 0, 1.0, factors)[..., None]
        if is_float8:
            return self._join(_to_float8(scaled), factors)
        return self._join(scaled.round().clamp(-INT8_MAX, INT8_MAX).to(torch.int8).view(torch.uint8), factors)

    @override
    def decode(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        elements = packed[..., : self.num_element_bytes]
        stored = torch.float8_e4m3fn if self.format.coding is Coding.FLOAT8 else torch.int8
        factors = self._factors(packed)
        vectors = elements.contiguous().view(stored).to(dtype)
        return vectors if factors is None else vectors * factors.to(dtype)[..., None]

    @override
    def _elements(self, packed: Tensor) -> Tensor:
        return _from_float8(packed) if self.format.coding is Coding.FLOAT8 else packed.view(torch.int8).float()


class _LloydMax(VectorCodec):
    """Turned at random, each coordinate as the code of its nearest level; the factor keeps the vector's length.

    A table gives all elements of one or one and a half bytes at a time.
    """

    def __init__(self, size: int, vector_format: VectorFormat, device: torch.device) -> None:
        super().__init__(size, vector_format, device)
        codebook = lloyd_max(vector_format.bits)
        # Levels are float32 numbers by definition, whatever they are computed with.
        self._levels = torch.tensor(codebook.levels, dtype=torch.float32, device=device).double()
        self._thresholds = torch.tensor(codebook.thresholds, dtype=torch.float64, device=device)
        self._turn = rotation(size).to(device)
        self._turn32 = self._turn.float()
        self._words = _words(self._levels.float(), vector_format.bits)
        padded = torch.nn.functional.pad(self._levels.float(), (0, 2**MAX_BITS - len(self._levels)))
        self.table = LevelTable(padded, self._thresholds, self._turn.T.contiguous())
        self._codes_in_word = _word_bits(vector_format.bits) // vector_format.bits

    @override
    def encode(self, vectors: Tensor) -> Tensor:
        # In float64, so that a vector gets the same bytes whatever stands beside it: the order in which a product is
        # summed follows the number of vectors, and a float32's last bit may carry a coordinate over a threshold.
        vectors = vectors.double()
        lengths = vectors.square().sum(-1).sqrt()
        unit = vectors / torch.where(lengths == 0, 1.0, lengths)[..., None]
        turned = unit @ self._turn.T * self.size**0.5
        codes = torch.bucketize(turned.contiguous(), self._thresholds, out_int32=True)
        kept = self._levels[codes].square().sum(-1).sqrt()
        factors = lengths / kept
        if self.format.factor_bytes == 2:
            factors = factors.clamp(max=FLOAT16_MAX)
        return self._join(pack(codes.to(torch.uint8), self.format.bits), factors)

    @override
    def decode(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        codes = unpack(packed[..., : self.num_element_bytes], self.format.bits, self.size)
        factors = self._factors(packed)
        turned = self._levels.to(dtype)[codes.long()]
        if factors is not None:
            turned = turned * factors.to(dtype)[..., None]
        return turned @ self._turn_in(dtype)

    @override
    def turn(self, queries: Tensor) -> Tensor:
        return queries @ self._turn_in(queries.dtype).T

    @override
    def turn_back(self, sums: Tensor) -> Tensor:
        return sums @ self._turn_in(sums.dtype)

    def _turn_in(self, dtype: torch.dtype) -> Tensor:
        return self._turn32 if dtype == torch.float32 else self._turn.to(dtype)

    @override
    def _elements(self, packed: Tensor) -> Tensor:
        words = _words_of_12(packed) if self.format.bits == 3 else packed.int()
        found = self._words.index_select(0, words.flatten()).view(torch.float32)
        # The last word may have room for more codes than there are.
        return found.view(*words.shape[:-1], words.shape[-1] * self._codes_in_word)[..., : self.size]


def make_codec(size: int, vector_format: VectorFormat, device: torch.device, tensor_factor: float = 1.0) -> VectorCodec:
    """The codec of a format.

    Args:
        size: elements of a vector.
        vector_format: of its bytes.
        device: where the vectors are.
        tensor_factor: for formats in which vectors have no factor of their own: what all are divided by.

    Raises:
        ValueError: the factor is not positive.
    """
    if not tensor_factor > 0:
        raise ValueError(f"the factor of a cache is {tensor_factor}; it must be positive")
    if vector_format.coding is Coding.LLOYD_MAX:
        return _LloydMax(size, vector_format, device)
    if vector_format.factor_bytes:
        return _Scaled(size, vector_format, device)
    return _Float8(size, vector_format, device, tensor_factor)


def _working(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _to_float8(elements: Tensor) -> Tensor:
    # Some versions of torch make no number of what is too large.
    return elements.clamp(-FLOAT8_MAX, FLOAT8_MAX).to(torch.float8_e4m3fn).view(torch.uint8)


def _from_float8(packed: Tensor) -> Tensor:
    """Float32 from the bytes of float8 numbers. Torch's own conversion takes ten times as long on a CPU."""
    if packed.is_cuda:
        return packed.view(torch.float8_e4m3fn).float()
    # Sign, exponent and fraction go where a float16 has them; its exponents start 8 lower.
    words = packed.view(torch.int8).to(torch.int16)
    words <<= 7
    words &= -0x4080
    # All ones are no number: there alone a sum carries, into the one bit of the exponent that is still 0.
    words |= (words & 0x3F80).add_(0x80).bitwise_and_(0x4000)
    return words.view(torch.float16).float().mul_(256.0)


def _words_of_12(packed: Tensor) -> Tensor:
    """``[..., 2 * runs]`` int32: the two words in each three bytes; bytes that the last run lacks are 0."""
    whole = torch.nn.functional.pad(packed, (0, -packed.shape[-1] % 3))
    first, second, third = whole.view(*whole.shape[:-1], -1, 3).int().unbind(-1)
    low = second.bitwise_and(15).mul_(256).add_(first)
    return torch.stack((low, third.mul_(16).add_(torch.bitwise_right_shift(second, 4))), -1).flatten(-2)


def _word_bits(bits: int) -> int:
    """The bits of a word, in which whole codes of 2, 3 or 4 bits fit."""
    return 12 if bits == 3 else 8


def _words(levels: Tensor, bits: int) -> Tensor:
    """``[2 ** width]``: the levels of all codes in a word of 8 bits, or 12 for codes of 3 bits, as one element.

    Copying an element of 8 or 16 bytes is far faster than copying as many floats.
    """
    width = _word_bits(bits)
    words = torch.arange(2**width, device=levels.device)
    shifts = torch.arange(width // bits, device=levels.device) * bits
    found = levels[torch.bitwise_right_shift(words[:, None], shifts).bitwise_and(2**bits - 1)]
    return found.view({2: torch.float64, 4: torch.complex128}[width // bits]).flatten()
