"""Strings as no one would write them on purpose: what tokenizers of one kind must read alike."""

import random
from collections.abc import Iterator, Sequence

_PARTS = [
    *"the cat sat on a sea don't 18th I'm naïve Möchte FRÜH café CAFÉ e\u0301 u\u0308 İstanbul ß ﬁne Ⅷ ½ ²".split(),
    *"東京 タワー 漢字 한국어 \u1112\u1161\u11ab ไทย हिन्दी क्ष молоко Ελλάδα שלום مرحبا \u202eabc\u202c".split(),
    *"😀 👩‍👩‍👧 👍🏽 🇩🇪 ❤️ a\u200db a\u200cb a\u200bb \ufeffx a\u00adb \u2028 \u2029 \u0085 \u000b \u000c".split(" "),
    *"\x01 \x07 \x1b[0m \x7f \ufffd \U000e0041 \ue000 \u0378".split(" "),
    *"... -- — «a» “b” `` '' http://a.b/c?d=e#f x@y.z 3.14 1,000 $5 €5 #1 C++ a_b A/B {x} [y] <z> \\n ¿? 、。".split(),
    *"abcdefghijklmnopqrstuvwxyz aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 12345678901234567890".split(),
    *"▁ ▁the ##s Ġthe </w> <0x41>".split(),
]
_SPACES = [*[" "] * 12, "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u2003", ""]


def odd_strings(count: int, special: Sequence[str] = (), seed: int = 0) -> Iterator[str]:
    """Strings of words in many scripts, marks, control characters and spaces, some with literal special tokens.

    special: tokens that stand in about a fifth of the strings
    """
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.choices(_PARTS, k=rng.randint(0, 7))
        if special and rng.random() < 0.2:
            words.insert(rng.randint(0, len(words)), rng.choice(special))
        text = "".join(word + rng.choice(_SPACES) for word in words)
        yield rng.choice(_SPACES) + text if rng.random() < 0.2 else text.strip(" ") if rng.random() < 0.5 else text
