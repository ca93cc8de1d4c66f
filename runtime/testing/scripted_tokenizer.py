"""A tiny, real byte-level vocabulary for tests, in the chat format of ChatML."""

from __future__ import annotations

from collections.abc import Sequence

from ramet.runtime.tokenizer.byte_level import ByteLevelMerger
from ramet.runtime.tokenizer.encoders import SplitEncoder
from ramet.runtime.tokenizer.kinds import TokenKind, ids_by_kind
from ramet.runtime.tokenizer.pretokenizers import pre_tokenizer
from ramet.runtime.tokenizer.tokenizer import Tokenizer, texts_of_kind

CONTROL_TEXTS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|reserved|>")

# Each is two earlier ones, or bytes.
_MERGES = (
    *(b"  ", b"in", b"er", b"an", b"th", b" t", b" a", b"the", b" the", b"and", b" and"),
    *(b'":', b'",', b'{"', b'"}', b"tr", b"ue", b"true", b"ll", b"00", b"\xc3\xa9"),
)

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\nTools:\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{% endfor %}
{{- 'Call one as <tool_call>{"name": ..., "arguments": {...}}</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
{{- '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""


def byte_level_encoder(
    tokens: Sequence[bytes], kinds: Sequence[TokenKind], merged: Sequence[bytes] = ()
) -> SplitEncoder:
    """GPT-2's way to cut text, and the merges that give ``merged``, best first."""
    by_kind = ids_by_kind(kinds)
    return SplitEncoder(
        ByteLevelMerger(tokens, kinds, merged, pre_tokenizer("gpt-2")),
        texts_of_kind(tokens, by_kind[TokenKind.CONTROL]),
        texts_of_kind(tokens, by_kind[TokenKind.USER_DEFINED]),
    )


def scripted_tokenizer(*pieces: str | bytes) -> Tokenizer:
    """All 256 bytes, some merges, ChatML's control tokens, and each of ``pieces`` as one token.

    No text is encoded to a token of ``pieces``: only a script says them. They may be parts of
    characters. ``<|im_end|>`` ends an output; so does ``<|endoftext|>``; ``<|reserved|>`` doesn't.
    """
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += _MERGES
    num_learnt = len(tokens)
    tokens += [text.encode() for text in CONTROL_TEXTS]
    for piece in pieces:
        data = piece.encode() if isinstance(piece, str) else piece
        if data not in tokens:
            tokens.append(data)
    kinds = [TokenKind.NORMAL] * len(tokens)
    for offset in range(len(CONTROL_TEXTS)):
        kinds[num_learnt + offset] = TokenKind.CONTROL
    return Tokenizer(
        tokens=tokens,
        kinds=kinds,
        encoder=byte_level_encoder(tokens, kinds, _MERGES),
        bos_id=num_learnt,
        eos_id=num_learnt + CONTROL_TEXTS.index("<|im_end|>"),
        eos_ids={num_learnt},
        chat_template=CHAT_TEMPLATE,
    )
