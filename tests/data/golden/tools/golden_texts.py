"""Texts for the tokenizer golden file: self-written lines plus seeded generators.

texts(tokens) yields (category, text) pairs; tokens is the list of token strings
already decoded to text (None where a token is not valid UTF-8 by itself).
"""
import random
import unicodedata

PROSE = """
The kettle had been singing for a while before anyone noticed.
Rain came in sideways, so we read maps in the back of the van.
She wrote, "Keep the receipts," and underlined it twice.
Nobody knew who owned the ladder; it had simply always been there.
My grandfather's clock ran eleven minutes fast, by design.
They'd've come earlier if the bridge hadn't been closed.
Two bakers, three cats and one very patient landlord shared the courtyard.
It isn't the fall that worries me -- it's the paperwork afterwards.
We're told the comet returns every 76 years, give or take.
I'll bring the soup if you'll bring the spoons.
What a strange, well-lit, over-furnished little room!
"Is that yours?" he asked. "It was," I said, "until Tuesday."
The committee (all four of them) voted to adjourn...
Quiet. Then a click. Then nothing at all.
An honest mistake, a dishonest excuse, and a long walk home.
Copper wire, cotton thread, candle wax: that was the whole list.
Her notebook smelled of oranges and engine oil.
You can't fold this map back the way it was; nobody can.
Photosynthesis, electroencephalography and antidisestablishmentarianism are long words.
Mr. Okonkwo-Leclerc arrived at 7:05 a.m., i.e., early.
THE SIGN SAID: NO SWIMMING, NO DIVING, NO EXCEPTIONS.
the lowercase poet refused every capital letter
He said he'd seen it; I'd've said otherwise, but who's counting?
A rolling average hides a rolling stone.
Between the lighthouse and the mill there are exactly nine gates.
Please mind the gap, the step, the low beam and the dog.
Salt first. Then flour. Then, slowly, the water.
The robot's log read: "battery low; morale adequate".
Every third plank had been painted green by somebody's nephew.
If it were done well, it would've been done twice.
We measured the field with a rope and were wrong by an acre.
Don't touch the red one!! Seriously!!! Don't.
Um... well, er, you know -- that sort of thing.
O'Brien's, D'Angelo's and the Joneses' fences all need repair.
The email subject was "Re: Re: Fwd: re: your re-reply".
A cactus does not hurry, and yet it gets there.
Pre-war, post-war, inter-war: the house survived all of it.
He counted sheep: 1 sheep, 2 sheep, 3 sheep, asleep.
Summer ended the way a song does when the tape runs out.
The cheapest ticket cost $4.50; the dearest, £1,204.99 or so.
Nine out of ten dentists couldn't be reached for comment.
It's 5 o'clock somewhere, said the clockmaker's apprentice.
Naive readers say naïve; café owners say "cafe"; résumés say nothing.
Please find attached the attachment that I forgot to attach.
Turn left at the fountain, left at the statue, left at the end.
His handwriting looked like a seismograph's diary.
The theory was elegant, the data were not.
Someone had knitted the parking meter a scarf.
I have eaten worse soup, but never on purpose.
Tomorrow's weather: more of today's, with apologies.
""".strip().split("\n")

CODE = [
    "int main(void)\n{\n\tputs(\"hi\");\n\treturn 0;\n}\n",
    "for (size_t i = 0; i < n; ++i) acc += a[i] * b[i];",
    "#define MIN(a, b) ((a) < (b) ? (a) : (b))\n",
    "static inline uint32_t rotl(uint32_t x, int r) { return (x << r) | (x >> (32 - r)); }",
    "typedef struct node { struct node *next; void *data; } node_t;",
    "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n",
    "if __name__ == \"__main__\":\n    sys.exit(main())",
    "squares = {k: k ** 2 for k in range(10) if k & 1}",
    "class Tree:\n    def __init__(self, kids=()):\n        self.kids = list(kids)\n",
    "@lru_cache(maxsize=None)\ndef f(n): return n if n < 2 else f(n-1) + f(n-2)",
    "print(f\"{name!r:>12} | {value:.3e}\")",
    "let v: Vec<Option<&'a str>> = it.map(|s| s.strip_prefix(\"x\")).collect();",
    "fn main() -> Result<(), Box<dyn Error>> {\n    println!(\"{:?}\", env::args());\n    Ok(())\n}",
    "match x { 0..=9 => 'd', b'a'..=b'z' => 'l', _ => '?' }",
    "func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {\n\tif err != nil {\n\t\treturn\n\t}\n}",
    "ch := make(chan int, 4); go func() { defer close(ch); ch <- 1 }()",
    "const add = (a, b) => a + b; // trivial\nexport default add;",
    "document.querySelectorAll('#menu > li.on').forEach(e => e.remove());",
    "async function* pages(u){ for(;;){ const r = await fetch(u); yield r?.json() ?? null; } }",
    "SELECT u.name, COUNT(*) AS n FROM users u LEFT JOIN logs l ON l.uid = u.id GROUP BY 1 HAVING n > 3;",
    "<div class=\"card\" id=\"c1\"><p>Hello &amp; goodbye</p><br/></div>",
    "body { margin: 0 auto; font: 12px/1.5 \"Noto Sans\", sans-serif; color: #1a2b3c; }",
    "for f in *.c; do gcc -O2 -c \"$f\" || exit 1; done",
    "awk -F, '{ s[$1] += $2 } END { for (k in s) print k, s[k] }' data.csv | sort -k2nr",
    "all: main.o\n\t$(CC) -o $@ $^ $(LDFLAGS)\n.PHONY: all\n",
    "qsort' [] = []\nqsort' (p:xs) = qsort' [x | x <- xs, x < p] ++ [p] ++ qsort' [x | x <- xs, x >= p]",
    "(define (fact n) (if (= n 0) 1 (* n (fact (- n 1)))))",
    "vfmadd231ps ymm0, ymm1, [rdi+rax*4+0x20]\njne .loop",
    "{\"id\": 17, \"tags\": [\"a\", \"b\"], \"ok\": true, \"x\": null, \"pi\": 3.14159}",
    "services:\n  db:\n    image: \"store:13\"\n    ports:\n      - 5432:5432\n",
    "[package]\nname = \"demo\"\nversion = \"0.1.0\"\n",
    "--- a/x.c\n+++ b/x.c\n@@ -1,3 +1,4 @@\n-int x;\n+int x = 0;\n+int y;\n",
    "^(?:[A-Za-z_]\\w*|\\d+(?:\\.\\d+)?)\\s*[-+*/]=\\s*.+$",
    "local t = setmetatable({}, { __index = function(_, k) return k .. '!' end })",
    "<?php foreach ($rows as $k => $v) { echo \"$k: {$v['n']}\\n\"; } ?>",
    "val xs = listOf(1, 2, 3).filter { it % 2 == 1 }.joinToString(\", \")",
    "public static <T extends Comparable<? super T>> T max(Collection<T> c) { return c.stream().max(naturalOrder()).get(); }",
    "template <class... Ts> auto sum(Ts&&... ts) { return (0 + ... + std::forward<Ts>(ts)); }",
    "std::cout << std::hex << 0xDEADBEEF << '\\n';",
    "module adder #(parameter W = 8)(input [W-1:0] a, b, output [W:0] s); assign s = a + b; endmodule",
    "      PROGRAM HELLO\n      WRITE(*,*) 'HELLO'\n      END",
    "fact(0, 1) :- !.\nfact(N, F) :- M is N - 1, fact(M, G), F is N * G.",
    "git rebase -i HEAD~3 && git push --force-with-lease origin HEAD:refs/heads/wip_2",
    "x_train, y_train = load_data(); model.fit(x_train[:,:-1], y_train)",
    "\t\t\tif (!p) {\n\t\t\t\tcontinue;\n\t\t\t}\n",
    "        deeply\n            indented\n                text\n    back",
    "a->b->c[3].d(e)(f){g};;/* h */",
    "i++ + ++i - --j + j-- >>> 2 <<= 3 !== 4 ??= 5 |> g",
    "r\"C:\\Users\\me\\Docs\\new file.txt\"",
    "export PATH=\"$HOME/.local/bin:${PATH:+:$PATH}\"",
]

MATH = [
    "$E = mc^2$", "\\frac{d}{dx}\\left(x^n\\right) = n x^{n-1}", "\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}",
    "$$\\int_{-\\infty}^{\\infty} e^{-x^2}\\,dx = \\sqrt{\\pi}$$", "∀ε>0 ∃δ>0: |x−a|<δ ⇒ |f(x)−f(a)|<ε",
    "\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}", "x² + y² = r²", "H₂O, CO₂ and C₆H₁₂O₆", "½ + ¼ = ¾",
    "ℝ ⊂ ℂ, ℕ ∌ −1", "A ∪ (B ∩ C) = (A ∪ B) ∩ (A ∪ C)", "∇·E = ρ/ε₀", "P(A|B) = P(B|A)P(A)/P(B)",
    "e^{i\\pi} + 1 = 0", "O(n log n) vs. Θ(n²)", "lim_{x→0} sin(x)/x = 1", "√2 ≈ 1.41421356", "7 × 8 = 56, 56 ÷ 7 = 8",
    "f: X → Y, x ↦ x³", "a ≡ b (mod n)", "‖v‖₂ ≤ ‖v‖₁", "det(A−λI)=0", "n! ~ √(2πn)(n/e)^n", "\\mathbb{E}[X] = \\sum_x x\\,p(x)",
    "𝑓(𝑥) = 𝛼𝑥 + 𝛽", "𝟘𝟙𝟚 𝔸𝔹ℂ", "Ⅰ Ⅱ Ⅲ Ⅳ ⅷ", "① ② ③ ⑳ ㊿", "3/4 − 5/6 = −1/12", "1st 2nd 3rd 4th 101st",
]

LANGUAGES = {
    "chinese": ["今天的风有点大。", "请把窗户关上,谢谢!", "他说:“我们明天再见。”", "一二三四五六七八九十", "程序员喜欢喝茶和写代码。",
                "繁體中文與简体中文", "价格是¥128.50元", "東京和北京哪个更远?"],
    "japanese": ["猫がいすの下で寝ています。", "カタカナとひらがなを混ぜる。", "2024年3月5日(火)", "ラーメン、ギョーザ、ビール!",
                 "それは本当ですか?", "ハンカクカナ", "「もしもし」と彼は言った。", "々〆ヶ"],
    "korean": ["오늘은 날씨가 맑아요.", "커피 두 잔 주세요!", "안녕히 가세요", "서울에서 부산까지 325km", "ㅋㅋㅋ ㅎㅎ ㅠㅠ", "한글과 English 섞기"],
    "thai": ["วันนี้ฝนตกหนัก", "กินข้าวหรือยัง", "ราคา ๑๒๓ บาท", "น้ำใสไหลเย็น", "ภาษาไทยไม่มีวรรค"],
    "arabic": ["الطقس جميل اليوم", "أين المفتاح؟", "كتابٌ جديدٌ", "السعر ١٢٣ دينار", "لا، شكرًا!", "ـــتطويلـــ"],
    "persian": ["می‌خواهم چای بنوشم", "کتاب‌ها ۴۵۶", "گربه روی دیوار است"],
    "urdu": ["یہ میری کتاب ہے۔", "آپ کیسے ہیں؟"],
    "hebrew": ["הכלב ישן בחצר", "מה השעה?", "שָׁלוֹם לְכֻלָּם", "בשנת 1984 נולדתי", "צה\"ל ט\"ו בשבט"],
    "hindi": ["आज मौसम अच्छा है।", "मुझे पानी चाहिए", "क़िताबें १२३ रुपये", "हिन्दी में लिखो", "क्ष त्र ज्ञ श्र"],
    "bengali": ["আমি ভাত খাই।", "কেমন আছো? ৪৫৬"],
    "tamil": ["நான் பள்ளிக்குப் போகிறேன்", "தமிழ் மொழி"],
    "telugu": ["నాకు తెలుగు వచ్చు"], "kannada": ["ನನ್ನ ಮನೆ ಇಲ್ಲಿದೆ"], "malayalam": ["മഴ പെയ്യുന്നു"],
    "gujarati": ["હું ઘરે જાઉં છું"], "punjabi": ["ਮੈਂ ਘਰ ਜਾ ਰਿਹਾ ਹਾਂ"], "sinhala": ["මම ගෙදර යනවා"],
    "burmese": ["မိုးရွာနေတယ်"], "khmer": ["ខ្ញុំទៅផ្សារ ១២៣"], "lao": ["ຂ້ອຍໄປຕະຫຼາດ"], "tibetan": ["ང་ནང་ལ་འགྲོ་གི་ཡིན། ༡༢༣"],
    "amharic": ["ዛሬ ዝናብ አለ። ፩፪፫"], "georgian": ["დღეს კარგი ამინდია"], "armenian": ["Այսօր արև է։"],
    "mongolian": ["ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ", "Өнөөдөр нар гарлаа"], "cherokee": ["ᎣᏏᏲ ᏙᎯᏧ"],
    "russian": ["Сегодня идёт снег.", "Где мой чёрный зонт?", "Он сказал: «Подожди минуту».", "ПРОПИСНЫЕ и строчные", "Поезд № 45 в 18:30"],
    "ukrainian": ["Ґанок і їжак", "Об'єкт під'їзду", "Сьогодні п’ятниця"],
    "bulgarian": ["Котката спи на дивана."], "serbian": ["Ђак чита књигу", "Ljubav i Njiva, džep"],
    "greek": ["Σήμερα έχει ήλιο.", "Πού είναι η γάτα;", "ΟΔΥΣΣΕΥΣ ὁ πολύτροπος", "άέήίόύώ ϊΐ ς σ"],
    "german": ["Der Bär läuft über die Straße.", "Fußgängerübergänge & Ölgemälde", "„Wirklich?“, fragte er.", "GROẞSCHREIBUNG",
               "Donaudampfschifffahrtsgesellschaftskapitän"],
    "french": ["L'été dernier, j'ai vu un cœur d'œuf.", "Où est passé l’âne ?", "« Ça alors ! » dit-elle.", "Noël à Nîmes"],
    "spanish": ["¿Dónde está el baño?", "¡Qué niño más pequeño!", "El pingüino comió ñandú."],
    "portuguese": ["A canção não terminou.", "Pão de açúcar às três"], "italian": ["Perché no? È così.", "l'amico dell'autista"],
    "polish": ["Zażółć kawałek źdźbła", "Łódź płynie wolno"], "czech": ["Příliš tichý žlutý kůň", "Ďábel, ťuk, ňadra"],
    "hungarian": ["Őrült tűzfű, nyári hűvös"], "romanian": ["Țara și școala mâine"], "turkish": ["İstanbul'da ılık bir gün", "ığüşöç IĞÜŞÖÇ"],
    "vietnamese": ["Hôm nay trời đẹp quá", "Nguyễn ăn phở ở Đà Nẵng", "Tiếng Việt"],
    "nordic": ["Blåbærsyltetøy på brød", "Ångström åt öl", "Þórður á jökli", "Hyvää yötä, äiti"],
    "other": ["Ħobż biż-żejt", "Aloha ʻoe, ʻōkina", "Ẹ káàárọ̀ o", "ꞗ ȣ ƕ ɸ ʃ ŋ ə", "Ⲁⲃⲅ ⲇⲉ", "𐌰𐌱𐌲 𐌳𐌴", "𒀀𒀁𒀂", "𓀀𓀁𓂀"],
}

EMOJI = [
    "😀", "😀😃😄", "I ❤️ soup", "👍🏽", "👍🏻👍🏼👍🏽👍🏾👍🏿", "👨‍👩‍👧‍👦", "👩🏾‍🚀", "🏳️‍🌈", "🏴‍☠️", "🇫🇷", "🇩🇪🇯🇵🇧🇷", "🇺🇳 UN", "1️⃣2️⃣3️⃣", "#️⃣*️⃣",
    "🧑‍💻 codes", "🤷‍♀️🤷🏿‍♂️", "done ✅ failed ❌", "🎉🎉🎉", "☎ ☎️ ☎︎", "🐈‍⬛", "❤️‍🔥", "🫠🫡", "👁️‍🗨️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "a🙂b🙂c",
    "🙂 🙃  😶", "🙂\n🙃", "™ © ®", "☀☁☂☃", "♠♥♦♣", "♔♕♖", "→←↑↓⇒", "▀▄█▌▐░▒▓", "┌─┬─┐", "⠁⠃⠉⠙", "🀄🂡🁢", "👩‍❤️‍💋‍👨", "🧜🏼‍♂️🧞", "🈁🈚", "🅰️🅱️",
]

URLS = [
    "https://example.org/", "http://127.0.0.1:8080/a/b?c=d&e=%20f#g", "ftp://files.example.net/pub/x-1.2.tar.gz", "mailto:someone@example.com",
    "www.example.co.uk/~user/index.html", "https://例え.example/パス?検索=値", "https://[2001:db8::1]:443/", "s3://bucket/key/with/slashes//double",
    "file:///C:/Temp/My%20Docs/", "git@host.example:team/repo.git", "see https://example.org/a_(b), then stop.", "data:text/plain;base64,SGVsbG8sIHdvcmxkIQ==",
    "user+tag@sub.example.com", "@handle #hash_tag #123 $TICK", "192.168.0.255/24", "00:1A:2B:3C:4D:5E", "550e8400-e29b-41d4-a716-446655440000",
    "sha256:9f86d081884c7d659a2feaa0c55ad015", "/usr/lib/x86_64-linux-gnu/libm.so.6", "..\\..\\etc\\hosts", "~/.config/app/settings.json5", "C:\\Windows\\System32",
    "tel:+49-30-1234567", "v1.2.3-rc.4+build.5", "2024-03-05T12:34:56.789Z", "12/31/1999 11:59 PM", "ISBN 978-3-16-148410-0", "foo.bar.baz.qux",
]

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>",
            "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>", "<jupyter_code>",
            "<jupyter_output>", "<jupyter_script>", "<empty_output>"]

CHATS = [
    [("user", "What is 2 + 2?")],
    [("system", "You answer in one word."), ("user", "Colour of grass?"), ("assistant", "Green")],
    [("user", "Schreib ein Haiku."), ("assistant", "Nein."), ("user", "Bitte?")],
    [("system", ""), ("user", "")],
    [("user", "  leading and trailing  ")],
    [("user", "line one\nline two\n\nline four")],
    [("user", "解释一下这段代码:\n```c\nreturn x << 3;\n```")],
]

SPACES = ["\t", "\n", "\v", "\f", "\r", " ", "\u0085", "\u00a0", "\u1680", "\u2000", "\u2003", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f",
          "\u205f", "\u3000"]
INVISIBLES = ["\u00ad", "\u034f", "\u061c", "\u180e", "\u200b", "\u200c", "\u200d", "\u200e", "\u2060", "\u2066", "\ufe0f", "\ufeff", "\ufff9",
              "\U000e0020"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0323", "\u0327", "\u0338", "\u0489", "\u05b8", "\u064e", "\u093f", "\u0e31", "\u1ab0", "\u20dd", "\u3099"]


def contractions():
    for quote in ("'", "\u2019"):
        for tail in ("s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "LL", "x", "em", "sa", "tis", "llama"):
            yield "it" + quote + tail + " ok"
    for text in ("'s", " 's", "''s", "'s's's", "x's'y", "5's", "'90s", "!'s", " 't re", "'\n's", "don't'd've", "'ll've", "y'all'd've", "'S 'T 'RE",
                 "rock 'n' roll", "'tis 'twas", "\u02bcs", "`s", "\u2018s", "\u2032s", "'\u00e9", "'s\u0301", "'ſ"):
        yield text


def whitespace():
    for s in SPACES:
        yield s
        yield s * 3
        yield "a" + s + "b"
        yield "a" + s + s + "b" + s
        yield s + "x" + s + " y" + " " + s + "z"
        yield "!" + s + "?" + s + "7"
    for n in list(range(2, 18)) + [24, 31, 32, 33, 48, 64, 65]:
        yield " " * n
        yield "if" + " " * n + "x"
    for n in (2, 3, 4, 5, 8):
        yield "\n" * n + "x"
        yield "\t" * n + "x"
        yield "a\r\n" * n
    yield from (" \n", "\n ", " \n ", "  \n  x", "x \n\n y", "\r\n\r\n", "a\rb\n\rc", " \t \t x", "\t \t", "x\t\n", "end ", "end  ", "end\n", " start",
                "  start", " ", "a  b   c    d", "\u3000全角 空白\u3000", "tab\tsep\tvalues", "col1\t\tcol3", "1 2  3   4", " 1", "  1", "1  ", "\n1", "\n\n1",
                " \u00a0 x", "\u00a0 x", "x\u00a0\u00a0", "- item\n  - nested\n    - deeper\n")
    for z in INVISIBLES:
        yield z
        yield "a" + z + "b " + z + " c" + z + "1" + z + z


def numbers(rng):
    yield from ("0", "7", "10", "007", "1234567890", "3.14159", "-273.15", "1,000,000", "1_000_000", "0x7fff", "0b1010", "6.02e23", "1e-9", "50%", "$19.99",
                "€5", "#42", "1/2", "2^10", "+1 (555) 010-9999", "12:30", "x1y22z333", "1a2b3c", "v2", "2nd", "٣٤٥", "१२३", "๑๒๓", "123", "²³¹", "½¾",
                "Ⅷ", "四十二", "1 000 000", "1\u00a0000", " 42", "  42", "42 ", "a 1 b 2", "(1)", "[0,1)", "1...9", "1..=9", "3'5\"", "1٣1", "𝟙𝟚", "①②", "㉈", "〇一")
    for _ in range(40):
        yield rng.choice(["", " ", "-", "x", "= "]) + str(rng.randrange(10 ** rng.randrange(1, 19)))
    for _ in range(25):
        yield f"{rng.uniform(-1e3, 1e3):.{rng.randrange(0, 9)}f}{rng.choice(['', ' kg', '%', 'e5', ' °C'])}"


def runs(rng):
    for c in "aAzeo .-=_*#/\\<>()!?,0159~|\"'\n\té中あ가ไ🙂я\u0301":
        yield c * rng.choice((3, 5, 8, 13))
        yield c * rng.choice((17, 40, 64, 100))
    yield from ("_", "__init__", "_a_b_", "snake_case_name", "SCREAMING_SNAKE", "___", "a__b___c", " _x", "_1_2", "ab" * 30, "haha" * 12, "=-" * 20, "0 " * 20,
                "a b " * 10, "\\n" * 8, "x" * 200, "the" * 12, "The the THE tHe", "aaaaaaaaab", "camelCaseAndPascalCase", "kebab-case-name", "HTTPServerXMLParser")


def controls():
    for c in list(range(0x20)) + [0x7F] + list(range(0x80, 0xA0)):
        yield "a" + chr(c) + "b" + chr(c) * 2 + " " + chr(c)
    # bytes that have no token in this vocabulary are dropped; their neighbours may then merge
    for c in (0x04, 0x06, 0x13, 0x14, 0x16, 0x1D):
        for text in ("{0}", "!{0}!", "={0}=={0}=", "-{0}{0}-", " {0}.{0} x", "<{0}|im_start|>"):
            yield text.format(chr(c))
    for c in (0x40000, 0x7FFFF, 0x80000, 0xBFFFF):
        yield f"!{chr(c)}! {chr(c)}"


def specials(rng):
    for s in SPECIALS:
        yield s
        yield f"a{s} b {s}c"
        yield s[:-1]
    yield from ("".join(SPECIALS), " ".join(SPECIALS), "<|im_start|><|im_end|>", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|", "<|im_start|>>", "<<|im_start|>",
                "<|IM_START|>", "<| im_start |>", "<|im_<|im_end|>start|>", "<|endoftext|><|endoftext|>", "\n<|im_end|>\n\n", "it<|im_end|>'s", "1<file_sep>2",
                "<repo_name>demo<file_sep>main.c\nint x;<|endoftext|>", "<reponame><repo_name>", "<|im_start|>" * 5, "é<gh_stars>10é", "<0x41>", "<unk>", "</s>", "[INST]")
    for chat in CHATS:
        body = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in chat)
        yield body
        yield body + "<|im_start|>assistant\n"
    for _ in range(30):
        yield "".join(rng.choice([rng.choice(SPECIALS), rng.choice([" ", "\n", "x", " y", "7", "<", "|>", "é", "  ", "'s"])]) for _ in range(rng.randrange(3, 9)))


def marks(rng):
    for word in ("café", "naïve", "Ångström", "über", "señor", "Việt", "각하", "が", "й", "ΐ", "שָׁ", "क़"):
        yield unicodedata.normalize("NFC", word)
        yield unicodedata.normalize("NFD", word)
    for _ in range(30):
        yield "".join(rng.choice("abeo n1!") + "".join(rng.choice(MARKS) for _ in range(rng.randrange(0, 4))) for _ in range(rng.randrange(1, 6)))
    yield from MARKS


def mixtures(rng):
    pieces = [t for group in LANGUAGES.values() for t in group] + EMOJI + MATH + [w for line in PROSE for w in line.split()]
    for _ in range(160):
        yield rng.choice(["", " ", ", ", "\n", "  ", "_", "-", "1", "'"]).join(rng.choice(pieces)[:12] for _ in range(rng.randrange(2, 5)))


def token_salad(rng, tokens):
    usable = [t for t in tokens if t]
    for _ in range(320):
        yield "".join(rng.choice(usable) for _ in range(rng.randrange(1, 9)))


def by_category():
    """Code points whose general category is the same in Unicode 14 to 17 (assigned in 14)."""
    groups = {}
    for c in range(0x110000):
        cat = unicodedata.category(chr(c))
        if cat not in ("Cs", "Cn"):
            groups.setdefault(cat, []).append(c)
    # these never get assigned
    groups["Cn"] = [0xFDD0, 0xFDEF, 0xFFFE, 0xFFFF, 0x1FFFE, 0x5FFFE, 0x9FFFF, 0x10FFFE, 0x10FFFF]
    return groups


def random_unicode(rng):
    groups = by_category()
    names = sorted(groups)
    for name in names:
        for _ in range(3):
            yield "".join(chr(rng.choice(groups[name])) for _ in range(rng.randrange(1, 7)))
    for _ in range(170):
        out = []
        for _ in range(rng.randrange(1, 11)):
            out.append(rng.choice([" ", "a", "1", "!", "'s", "\n"]) if rng.random() < 0.35 else chr(rng.choice(groups[rng.choice(names)])))
        yield "".join(out)
    for low, high in ((0x20, 0x7E), (0, 0x7F), (0x80, 0x7FF), (0x20, 0x2FF), (0x1F300, 0x1F5FF)):
        for _ in range(16):
            yield "".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 16)))


# Letters and digits that Unicode 15, 15.1, 16 and 17 added, so a table's age shows.
NEW_LETTERS = [0x1C8A, 0xA7CB, 0xA7DC, 0x10D50, 0x10EC3, 0x11240, 0x11380, 0x11F04, 0x13460, 0x16100, 0x16D40, 0x1DF2A, 0x1E030, 0x1E4D0, 0x1E5D0,
               0x2B739, 0x2EBF0, 0x31350]
NEW_NUMBERS = [0x10D40, 0x116D0, 0x11BF0, 0x11F50, 0x16130, 0x16D70, 0x1CCF0, 0x1D2C0, 0x1E4F0, 0x1E5F1, 0x11DE0, 0x16FF4]


def new_unicode():
    for c in map(chr, NEW_LETTERS + NEW_NUMBERS):
        yield "new-unicode", c
        yield "new-unicode", f"a{c}!{c}  {c}{c}1{c}"
        yield "new-unicode", f"{c}'s'd\n\n{c}"


def texts(tokens, seed=20250101):
    rng = random.Random(seed)
    sources = [
        ("empty", [""]), ("prose", PROSE), ("code", CODE), ("math", MATH), ("language", [t for g in LANGUAGES.values() for t in g]),
        ("emoji", EMOJI), ("url", URLS), ("contraction", contractions()), ("whitespace", whitespace()), ("number", numbers(rng)), ("run", runs(rng)),
        ("control", controls()), ("special", specials(rng)), ("mark", marks(rng)), ("mixture", mixtures(rng)), ("tokens", token_salad(rng, tokens)),
        ("unicode", random_unicode(rng)),
    ]
    seen = set()
    for category, items in sources:
        for text in items:
            if text not in seen:
                seen.add(text)
                yield category, text
