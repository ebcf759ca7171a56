"""Keys and values in slots: derived errors, exact lengths, and what is left alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantised_caches import MAX_1960, MODES, element_bound, lengths, make_codec, turned_error
from torch import Tensor

from genericbuilders.kernels.quant.codecs import make_codec as make_vector_codec
from genericbuilders.kernels.quant.formats import Coding, VectorFormat, slot_format
from genericbuilders.kernels.quant.select import select_quantised_kernels
from genericbuilders.kernels.quant.slots import SlotCodec, read_pages, write_slots
from genericbuilders.specs import KVQuantMode

by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
by_kernel = pytest.mark.parametrize("kernel", ["native", "portable"])
CPU = torch.device("cpu")


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check_errors(vectors: Tensor, stored: Tensor, vector_format: VectorFormat) -> None:
    """Elements within their bound; for turned vectors, the mean squared error of the definition."""
    error = (stored - vectors.double()).abs()
    if vector_format.coding is not Coding.LLOYD_MAX:
        assert bool((error <= element_bound(vectors, vector_format)).all())
        return
    relative = error.square().sum(-1) / vectors.double().square().sum(-1)
    assert float(relative.mean()) == pytest.approx(turned_error(vector_format.bits, vectors.shape[-1]), rel=0.02)


@by_mode
@pytest.mark.parametrize("head_size", [64, 128])
def test_errors_are_what_was_derived(mode: KVQuantMode, head_size: int) -> None:
    codec = make_codec(mode, head_size)
    # Tokens of very different size, as attention has them.
    size = torch.logspace(-3, 1.5, 3000)[:, None, None]
    key, value = draw(1, 3000, 2, head_size) * size, draw(2, 3000, 2, head_size) * size
    slots = codec.encode(key, value)
    assert slots.dtype == torch.uint8
    assert slots.shape == (3000, 2, codec.slot.slot_bytes)
    keys, values = codec.decode(slots, torch.float64)
    check_errors(key, keys, codec.slot.key)
    check_errors(value, values, codec.slot.value)


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("head_size", [127, 128, 256, 576])
def test_codes_of_normal_coordinates_have_maxs_error(bits: int, head_size: int) -> None:
    """Of the levels that are stored, before their vector's factor gives them its length again."""
    codec = make_vector_codec(head_size, VectorFormat(Coding.LLOYD_MAX, bits, 4), torch.device("cpu"))
    vectors = draw(bits, 2**20 // head_size, head_size)
    levels, factors = codec.unpack(codec.encode(vectors))
    assert factors is not None
    # Vectors are quantised as if they were of one length, which a normal's are the more so the more coordinates they have.
    turned = codec.turn(vectors) * (head_size**0.5 / lengths(vectors)[:, None])
    assert float((levels - turned).square().mean()) == pytest.approx(MAX_1960[bits], rel=0.02)


@by_mode
@settings(max_examples=10, deadline=None)
@given(count=st.integers(1, 40), head_size=st.sampled_from([16, 63, 64, 128]), seed=st.integers(0, 999))
def test_a_vector_gets_the_same_bytes_whatever_stands_beside_it(
    mode: KVQuantMode, count: int, head_size: int, seed: int
) -> None:
    codec = make_codec(mode, head_size)
    key, value = draw(seed, count, 3, head_size), draw(seed + 1, count, 3, head_size)
    whole = codec.encode(key, value)
    alone = torch.cat([codec.encode(key[token : token + 1], value[token : token + 1]) for token in range(count)])
    assert torch.equal(alone, whole)


@by_mode
def test_what_attention_unpacks_is_what_decoding_gives(mode: KVQuantMode) -> None:
    codec = make_codec(mode, 80)
    slots = codec.encode(draw(3, 50, 3, 80), draw(4, 50, 3, 80))
    keys, values = codec.decode(slots, torch.float64)
    found, factors = codec.unpack_keys(slots)
    found = found if factors is None else found * factors[..., None]
    query = draw(5, 50, 3, 80)
    torch.testing.assert_close(
        (codec.turn_query(query) * found).sum(-1).double(), (query.double() * keys).sum(-1), atol=1e-4, rtol=1e-5
    )
    found, factors = codec.unpack_values(slots)
    found = found if factors is None else found * factors[..., None]
    torch.testing.assert_close(codec.turn_back(found).double(), values, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if slot_format(mode, 64).key.coding is Coding.LLOYD_MAX], ids=lambda mode: mode.name
)
def test_turned_vectors_keep_their_length(mode: KVQuantMode) -> None:
    codec = make_codec(mode, 64)
    # One coordinate far above the others, as keys have it.
    key, value = draw(6, 200, 1, 64), draw(7, 200, 1, 64)
    key[..., 3] += 40
    keys, values = codec.decode(codec.encode(key, value), torch.float64)
    # A float16 has 10 bits behind the leading one, a float32 23.
    torch.testing.assert_close(lengths(keys), lengths(key.double()), atol=0, rtol=2.0**-11 + 1e-6)
    torch.testing.assert_close(lengths(values), lengths(value.double()), atol=0, rtol=1e-6)


@by_mode
def test_zeros_stay_zeros_and_nothing_overflows(mode: KVQuantMode) -> None:
    codec = make_codec(mode, 64)
    zeros = torch.zeros(2, 64)
    keys, values = codec.decode(codec.encode(zeros, zeros), torch.float32)
    assert not keys.any()
    assert not values.any()
    huge = torch.full((1, 64), 3e5)
    keys, values = codec.decode(codec.encode(huge, -huge), torch.float32)
    assert keys.isfinite().all()
    assert values.isfinite().all()


@by_mode
def test_bytes_of_zero_are_finite_numbers(mode: KVQuantMode) -> None:
    # Slots beyond a sequence are read as zero bytes.
    codec = make_codec(mode, 64)
    slots = torch.zeros(1, codec.slot.slot_bytes, dtype=torch.uint8)
    for elements, factors in (codec.unpack_keys(slots), codec.unpack_values(slots)):
        assert elements.isfinite().all()
        assert factors is None or factors.isfinite().all()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_all_bytes_that_stand_for_numbers_are_unpacked_as_decoded(mode: KVQuantMode) -> None:
    codec = make_codec(mode, 256)
    slots = torch.zeros(1, codec.slot.slot_bytes, dtype=torch.uint8)
    # Every byte once, but for the two that stand for no number in float8.
    every = torch.arange(256, dtype=torch.uint8)
    every[[0x7F, 0xFF]] = 0
    count = codec.key.num_element_bytes
    slots[0, :count] = every[-count:]
    if codec.slot.key.factor_bytes:
        one = torch.ones(1, dtype=torch.float16 if codec.slot.key.factor_bytes == 2 else torch.float32)
        slots[0, count : codec.slot.key_bytes] = one.view(torch.uint8)
    elements, factors = codec.unpack_keys(slots)
    assert factors is None or bool((factors == 1).all())
    keys, _ = codec.decode(slots, torch.float64)
    torch.testing.assert_close(codec.turn_query(keys.float()), elements, atol=1e-5, rtol=1e-5)


def test_one_factor_for_the_whole_tensor_moves_its_range() -> None:
    slot = slot_format(KVQuantMode.FP8_PER_TENSOR, 8)
    vectors = torch.tensor([[1000.0, -2000.0, 4480.0, 1.0, 0, 0, 0, 0]])
    cut, _ = SlotCodec(slot, vectors.device).decode(
        SlotCodec(slot, vectors.device).encode(vectors, vectors), torch.float32
    )
    assert torch.equal(cut[0, :3], torch.tensor([448.0, -448.0, 448.0]))
    codec = SlotCodec(slot, vectors.device, key_factor=10.0)
    whole, _ = codec.decode(codec.encode(vectors, vectors), torch.float32)
    torch.testing.assert_close(whole, vectors, atol=0.02, rtol=2.0**-4)
    found, factors = codec.unpack_keys(codec.encode(vectors, vectors))
    assert factors is None
    assert torch.equal(found, whole)
    with pytest.raises(ValueError, match=r"factor of a cache is 0\.0; it must be positive"):
        SlotCodec(slot, vectors.device, key_factor=0.0)


@by_kernel
@by_mode
@settings(max_examples=15, deadline=None)
@given(
    slots=st.lists(st.integers(-1, 19), min_size=0, max_size=12),
    spare=st.integers(0, 3),
    block_size=st.sampled_from([1, 4, 5]),
)
def test_slots_are_written_and_nothing_else(
    mode: KVQuantMode, kernel: str, slots: list[int], spare: int, block_size: int
) -> None:
    # Two tokens of one batch never share a slot.
    slots = [slot if slot < 0 or slot not in slots[:place] else -1 for place, slot in enumerate(slots)]
    codec = make_codec(mode, 16)
    generator = torch.Generator().manual_seed(0)
    shape = (-(-20 // block_size), 2, block_size, codec.slot.slot_bytes)
    cache = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    before = cache.clone()
    key, value = draw(8, len(slots), 2, 16), draw(9, len(slots), 2, 16)
    mapping = torch.tensor(slots + [3] * spare, dtype=torch.int64)
    select_quantised_kernels(CPU, key.dtype, kernel).write_slots(key, value, cache, mapping, codec)
    packed = codec.encode(key, value)
    for slot in range(shape[0] * block_size):
        block, offset = divmod(slot, block_size)
        expected = packed[slots.index(slot)] if slot in slots else before[block, :, offset]
        assert torch.equal(cache[block, :, offset], expected)


@by_mode
@settings(max_examples=15, deadline=None)
@given(
    tokens=st.integers(0, 60),
    head_size=st.sampled_from([16, 17, 31, 63, 64, 80, 128]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    spread=st.sampled_from([1e-6, 1e-2, 1.0, 30.0, 3e4]),
    seed=st.integers(0, 999),
)
def test_the_compiled_kernel_writes_the_same_bytes(
    mode: KVQuantMode, tokens: int, head_size: int, dtype: torch.dtype, spread: float, seed: int
) -> None:
    codec = make_codec(mode, head_size)
    # Slices of wider tensors, with a vector of zeros. Vectors such as (1, 1, ...) are left out: the rotation makes some
    # coordinates 0 of them but for a rounding, and 0 is halfway between two levels.
    fused = (draw(seed, tokens, 5, head_size + 3) * spread).to(dtype)
    key, value = fused[:, :2, :head_size], fused[:, 2:4, 1 : head_size + 1]
    if tokens > 2:
        key[0] = value[2, 0] = 0
    caches: list[Tensor] = []
    for kernel in ("native", "portable"):
        cache = torch.full((-(-tokens // 4) + 1, 2, 4, codec.slot.slot_bytes), 99, dtype=torch.uint8)
        select_quantised_kernels(CPU, dtype, kernel).write_slots(key, value, cache, torch.arange(tokens), codec)
        caches.append(cache)
    assert torch.equal(caches[0], caches[1])


def test_the_compiled_kernel_rounds_every_float16_as_torch_does() -> None:
    """To float8 by a factor of 1, and, a vector for each number, to int8."""
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    every = every[every.isfinite()]
    padded = torch.nn.functional.pad(every, (0, -len(every) % 64)).view(-1, 1, 64)
    for mode in (KVQuantMode.FP8_PER_TENSOR, KVQuantMode.FP8_PER_TOKEN_HEAD, KVQuantMode.INT8_PER_TOKEN_HEAD):
        codec = make_codec(mode, 64)
        cache = torch.zeros(len(padded), 1, 1, codec.slot.slot_bytes, dtype=torch.uint8)
        slots = torch.arange(len(padded))
        select_quantised_kernels(CPU, torch.float16, "native").write_slots(padded, -padded, cache, slots, codec)
        assert torch.equal(cache[:, :, 0], codec.encode(padded, -padded))


@by_kernel
def test_bad_slots_are_refused(kernel: str) -> None:
    codec = make_codec(KVQuantMode.INT8_PER_TOKEN_HEAD, 8)
    write = select_quantised_kernels(CPU, torch.float32, kernel).write_slots
    cache = torch.zeros(2, 1, 4, codec.slot.slot_bytes, dtype=torch.uint8)
    with pytest.raises(ValueError, match="slot_mapping has 2 entries for 3 tokens"):
        write(torch.zeros(3, 1, 8), torch.zeros(3, 1, 8), cache, torch.tensor([1, 2]), codec)
    with pytest.raises(ValueError, match=r"slot_mapping.* 8; the cache has slots 0 to 7"):
        write(torch.ones(2, 1, 8), torch.ones(2, 1, 8), cache, torch.tensor([1, 8]), codec)
    assert not cache.any()


def test_what_the_compiled_kernel_refuses_to_write() -> None:
    codec = make_codec(KVQuantMode.INT8_PER_TOKEN_HEAD, 8)
    write = select_quantised_kernels(CPU, torch.float32, "native").write_slots
    cache = torch.zeros(2, 1, 4, codec.slot.slot_bytes, dtype=torch.uint8)
    tokens, slots = torch.ones(2, 1, 8), torch.arange(2)
    with pytest.raises(TypeError, match=r"key is torch\.float64 and value torch\.float64; the compiled kernels take"):
        write(tokens.double(), tokens.double(), cache, slots, codec)
    with pytest.raises(TypeError, match=r"key is torch\.float32 and value torch\.bfloat16"):
        write(tokens, tokens.bfloat16(), cache, slots, codec)
    with pytest.raises(TypeError, match=r"slot_mapping is torch\.int32; it must be torch\.int64"):
        write(tokens, tokens, cache, slots.int(), codec)
    with pytest.raises(ValueError, match=r"key \(2, 1, 8\) and value \(1, 1, 8\) must have"):
        write(tokens, tokens[:1], cache, slots, codec)
    with pytest.raises(ValueError, match="head_size 4 and the cache slots of 24 bytes"):
        write(tokens[..., :4], tokens[..., :4], cache, slots, codec)


@by_mode
def test_pages_are_read_as_plain_kernels_take_them(mode: KVQuantMode) -> None:
    codec = make_codec(mode, 16)
    cache = torch.zeros(3, 2, 4, codec.slot.slot_bytes, dtype=torch.uint8)
    key, value = draw(10, 12, 2, 16), draw(11, 12, 2, 16)
    write_slots(key, value, cache, torch.arange(12), codec)
    keys, values = read_pages(cache, codec, torch.float32)
    expected = codec.decode(codec.encode(key, value), torch.float32)
    assert torch.equal(keys.flatten(0, 1), expected[0])
    assert torch.equal(values.flatten(0, 1), expected[1])
