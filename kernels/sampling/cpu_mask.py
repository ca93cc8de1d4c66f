"""Questions about a packed token mask, answered in compiled code."""

from __future__ import annotations

from ramet.jit import open_jit


@open_jit("boolean(int32[::1], uint8[::1], int32[:,::1])")
def agrees_on_first_byte(mask, first_bytes, others):  # type: ignore[no-untyped-def]
    """Whether all tokens of a mask begin with one byte; False if there is none.

    ``first_bytes`` is uint8[32 * W], ``others`` int32[256, W]: the tokens that don't begin with it.
    """
    for word in range(len(mask)):
        bits = mask[word]
        if bits == 0:
            continue
        bit = 0
        while not (bits >> bit) & 1:
            bit += 1
        other = others[first_bytes[32 * word + bit]]
        different = 0
        for at in range(word, len(mask)):
            different |= mask[at] & other[at]
        return different == 0
    return False
