"""Varied texts for comparisons of tokenizers: scripts, code, numbers, spaces, contractions, marks, names of special tokens."""
import random
import unicodedata

WORDS = """the of and house walking THE Über naïve Straße façade Übermut it's I'll WE'VE don't CAN'T he'd She'S they'RE o'clock rock'n'roll l'été
internationalization pneumonoultramicroscopic camelCaseWord snake_case_word SCREAMING_CASE HTTPServer2 v1.2.3-rc4 x86_64 🙂 e.g. i.e. Mr. U.S.A.""".split()
SCRIPTS = [
    "今天早上下了一场大雨,街上几乎没有人。", "私は昨日、新しい本を三冊買いました。カタカナとひらがな", "나는 어제 새 책을 샀다. 한국어 문장입니다", "في صباح اليوم هطل مطر غزير ١٢٣٤",
    "आज सुबह तेज़ बारिश हुई। क्षत्रिय १२३", "Сегодня утром шёл сильный дождь", "Το πρωί έβρεξε πολύ ΑΒΓ", "בבוקר ירד גשם חזק שָׁלוֹם", "เช้านี้ฝนตกหนักมาก กำลัง", "កាន់តែពិសេសអាច",
    "இன்று காலை மழை பெய்தது", "আজ সকালে বৃষ্টি", "Sáng nay trời mưa to Cửa Việt", "დღეს დილით წვიმდა", "Այսօր առավոտյան", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ", "𐐀𐐁𐐂 𝒜𝓑𝕮 𝟘𝟙𝟚", "ﬁne ﬂow ﷺ ＡＢＣ１２３ ｱｲｳ ㎏ ½ Ⅷ ² ① 〇",
]
EMOJI = "😀 👩🏽‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 🐈‍⬛ ❤️‍🔥 ✅ ☀️ 1️⃣ 😶‍🌫️ 🦙".split()
CODE = ["for (int i = 0; i < n; i++) {\n\t\tx[i] += 3.14e-2f;\n    }", "def f(a, *b, **c):\n    return {k: v for k, v in a.items() if v != None}\n\n\n",
        "<div class=\"a b\">&nbsp;</div>\r\n<!-- x -->\r\n", "SELECT * FROM t WHERE a='it''s' AND b>=10;", "\\frac{1}{2}\\sum_{i=0}^{n} x_i^2 \\\\", "#include <stdio.h>\n#define A(x) ((x)<<2)",
        "https://example.org/a/b?c=d&e=%20f#g", "if(!a||b&&~c^d){return -1;}//TODO: fix", "key: [1, 2.5, -3e10, 0xFF, 1_000_000]", "$ ls -la | grep \"^d\" > /dev/null 2>&1"]
SPACES = [" ", "  ", "   ", "     ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", " \n \n", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028", "\x85", "\x0b", "\x0c", " \t ", "\ufeff", "\u180e", "\x1c", "\u2009 "]
MARKS = ["e\u0301", "a\u0308\u0304", "\u0301", "n\u0303o", "\u0e33", "\u0bc6\u0bbe", "\u1100\u1161\u11a8", "\u212b", "\ufb03", "\u017f", "\u212a", "'\u017f", "\u2019s", "\u0345", "\u093c", "x\u20e3", "\u034f", "\u200d", "\u200c"]
NAMES = ["<|endoftext|>", "<|im_start|>", "<s>", "</s>", "<unk>", "<|begin_of_text|>", "<|eot_id|>", "[INST]", "[/INST]", "<|end|>", "<0x0A>", "<pad>", "<|user|>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "\u2581", "\u2581the", "\u0120the", "<|", "|>"]
PUNCT = "!!! ?! ... … — – “quoted” ‘q’ «g» ¿Qué? ¡Sí! // /// ----- ===== ***** ~~~ @user #tag $5 €7 % ^ & * ( ) [ ] { } < > \\ | ` ´ \" ' '' ''' ,,, ;; :: 。。 ，， 、 ！？ ～ · • ° ± × ÷ ≠ → ∞".split()


def number(r):
    n = r.choice([1, 1, 2, 3, 4, 5, 7, 9, 12, 21])
    s = "".join(r.choice("0123456789") for _ in range(n))
    return r.choice([s, s, s, f"{s}.{s[:2]}", f"-{s}", f"{s},{s[:3]}", f"0x{s}", f"{s}%", f"{s}th", f"1e{s[:2]}", "".join(chr(0x660 + int(c)) for c in s), "".join(chr(0xff10 + int(c)) for c in s)])


def character(r):
    """Any character that Unicode 14 has (newer ones are letters to some of the references alone), but no half of a surrogate pair."""
    while True:
        c = r.choice([r.randrange(0x20, 0x250), r.randrange(0x250, 0x3000), r.randrange(0x3000, 0xffff), r.randrange(0x10000, 0x20000)])
        if unicodedata.category(chr(c)) not in ("Cn", "Cs"):
            return chr(c)


def part(r):
    kind = r.randrange(12)
    if kind < 3:
        return " ".join(r.choice(WORDS) for _ in range(r.randrange(1, 6)))
    if kind == 3:
        s = r.choice(SCRIPTS)
        a = r.randrange(len(s))
        return s[a:a + r.randrange(1, 20)]
    if kind == 4:
        return r.choice(SPACES) * r.choice([1, 1, 1, 2, 5])
    if kind == 5:
        return number(r)
    if kind == 6:
        return r.choice(CODE)
    if kind == 7:
        return "".join(r.choice(EMOJI) for _ in range(r.randrange(1, 4)))
    if kind == 8:
        return r.choice(WORDS)[:r.randrange(1, 6)] + r.choice(MARKS) + r.choice(["", "a", " b", "1"])
    if kind == 9:
        return r.choice(PUNCT)
    if kind == 10:
        return r.choice(NAMES)
    return "".join(character(r) for _ in range(r.randrange(1, 6)))


def varied(n, seed=18):
    r = random.Random(seed)
    fixed = ["I'Sx she'LLy we'VEz", "\u2605\u4e2d\u6587\u2605\u0c95\u0ca8\u2605", "\u2605\u0850\u0851\u2605", "a!/\n/b ?/\r\n//c", "\u2581 x \u2581  \u2581\u2581 y \u2581",
             "\u1100\u1161\u11a8 e\u0301e\u0302\u0301 \uff76\uff9e \u0958 \u212b\u0327 \u3392", "this is the same as a test of the trace", "", " ", "\n", *SPACES, *SCRIPTS, *CODE, *NAMES, *PUNCT, *MARKS, " ".join(WORDS), "a" * 300, " " * 300 + "x", "\n" * 99, "7" * 100, "!" * 99, "\u0301" * 50, "ab" * 200]
    out = list(dict.fromkeys(fixed))
    while len(out) < n:
        out.append("".join(part(r) + r.choice(["", "", " ", " ", "\n"]) for _ in range(r.choice([1, 2, 3, 3, 5, 9]))))
    return out[:n]
